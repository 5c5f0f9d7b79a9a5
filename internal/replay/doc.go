// Package replay answers what a configuration would have decided on the requests of an access log. The configuration is
// provisioned as Caddy does it: the same matchers, handlers, zones and counters decide. Handlers that serve are replaced by
// one that answers as the log says, and stores by memory on the log's clock. Nothing listens, and nothing is written.
//
// Package accesslog reads the lines, and order brings them into the order in which their requests came.
package replay
