// Package settling has no code but tests: zones with settle and count_if in a real Caddy, behind connections that
// go both ways, over HTTP/3, on a Redis Cluster, with two secrets, and over reloads.
package settling
