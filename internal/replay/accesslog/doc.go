// Package accesslog reads access logs: Caddy's JSON since 2.5 and its console format, the common and the combined
// format of nginx and Apache. It reads plain, gzip and zstd files and standard input, and merges several files by time.
//
// A line is scanned for the fields that every request needs. Headers and other members stay in the line until
// Line.Header or Line.Member asks for them.
package accesslog
