// Package e2e tests the plugin from outside: what a Caddyfile is adapted to, what a Caddy answers over
// HTTP and its admin API, what the command line prints, and what the documents promise. A test here knows
// exported names only. Tests run in the directory of the module, so that paths are those of documents.
package e2e
