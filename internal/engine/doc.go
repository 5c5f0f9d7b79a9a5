// Package engine holds what stores need beside package window, and what their users ask for that not
// every store can do: checks of charges, names of counters, errors that say what became of a request,
// receipts, and interfaces of stores.
package engine
