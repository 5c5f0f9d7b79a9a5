// Package alert counts what zones decide, reports zones that deny a large share of their requests, and
// writes a summary of what was denied.
package alert
