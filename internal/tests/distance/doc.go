// Package distance tests stores whose servers are far away.
package distance
