// Package fuzz holds the fuzz targets of the handler. It is a package of its own
// so that a fuzz build has little more of Caddy to instrument than it has to.
package fuzz
