// Package template expands texts of a configuration that hold Caddy's placeholders: the keys of zones,
// and the numbers and durations of limits and costs. It knows the names of Caddy's placeholders, what was
// probably meant by another name, why a placeholder has no value, and in which spelling a value counts.
package template
