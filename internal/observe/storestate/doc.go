// Package storestate tells operators how a store is: in the log, in metrics and by events.
package storestate
