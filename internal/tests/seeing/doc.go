// Package seeing tests docs/grafana.json and docs/alerts.yml: a real Prometheus scrapes a Caddy under
// load, and every expression in them has an answer. `make test-prometheus` runs it, with the build tag
// prometheus; the variable PROMETHEUS of the environment is the path of the program.
package seeing
