package lint

import (
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
)

// Rule is a rule of lint. Its section in docs/lint.md has a Caddyfile in which the rule finds something and one in which it
// does not, and tests run both.
type Rule struct {
	Code     string
	Severity Severity
	Title    string
	// Cause and Cure hold for all that the rule finds, unless a problem has a cure of its own.
	Cause, Cure string
	// NeedsLog is whether the rule finds something only with an access log.
	NeedsLog bool

	check func(c *Config, z *zone) []problem
}

// problem is what a rule finds in a zone.
type problem struct {
	what, cure string
	// Where it is: an option of the zone, the n-th of this word, or else one of the store, of the handler or a global
	// one, or a line.
	option, store, handler, global string
	nth                            int
	at                             written.Place
}

// isOfZone reports whether the problem is in the zone, and not in what several zones have.
func (p *problem) isOfZone() bool { return p.store == "" && p.handler == "" && p.global == "" }

// finding returns the finding for a problem, without its place.
func (r Rule) finding(p problem) Finding {
	f := Finding{Code: r.Code, Severity: r.Severity, What: p.what, Cause: r.Cause, Cure: r.Cure, Link: page + strings.ToLower(r.Code)}
	if p.cure != "" {
		f.Cure = p.cure
	}
	return f
}

// ignoreRule finds comments that are wrong. They cannot be ignored.
var ignoreRule = Rule{
	Code: "SW000", Severity: Error, Title: "A comment ignores nothing, or does not say why",
	Cause: "such a comment hides the next mistake on its line",
	Cure:  "take the comment out, or write # lint:ignore <code> <reason>",
}

// Rules are all rules but the one about comments, by code.
var Rules = []Rule{
	{
		Code: "SW001", Severity: Error, Title: "No request reaches the zone",
		Cause: "handlers and matchers around the zone take all of its requests, so that it counts nothing",
		Cure:  "write sliding_window before the handler that answers, or match requests that come to it",
		check: unreachable,
	},
	{
		Code: "SW002", Severity: Error, Title: "The path has lost its beginning",
		Cause: "handle_path and uri strip_prefix take the prefix off the path before matchers behind them see it",
		Cure:  "match what is left of the path, or use handle in place of handle_path",
		check: lostPaths,
	},
	{
		Code: "SW003", Severity: Error, Title: "Authentication comes after the zone",
		Cause: "sliding_window runs before the handler that gives the placeholder its value, so that the value is empty for all",
		Cure:  "write both in a route, the authentication first",
		check: mistakes(early),
	},
	{
		Code: "SW004", Severity: Warning, Title: "Nothing gives the placeholder a value",
		Cause: "the placeholder is not one of Caddy's, and no map or vars defines it",
		check: mistakes(unknown),
	},
	{
		Code: "SW005", Severity: Warning, Title: "The key is the same for all requests",
		Cause: "the key holds no placeholder, so that all clients share one counter",
		Cure:  "write key {client_ip} for a limit for each client, or key all if one limit for all is meant",
		check: mistakes(constant),
	},
	{
		Code: "SW006", Severity: Warning, Title: "The key is an address that clients can write",
		Cause: "any client can send the field with any address, unless a proxy overwrites it and no client reaches Caddy beside the proxy",
		Cure:  "write key {client_ip}, and name the proxies in trusted_proxies; client_ip_headers names the field",
		check: mistakes(claimed),
	},
	{
		Code: "SW007", Severity: Warning, Title: "Clients choose the key, and no zone bounds them",
		Cause: "a client that is denied changes the value, and has the whole limit again",
		Cure:  "add a zone with key {client_ip} and the same match, or count what has been checked, as {http.auth.user.id} behind an authentication",
		check: chosenKey,
	},
	{
		Code: "SW008", Severity: Warning, Title: "Clients choose the limit or the cost",
		Cause: "a client writes the number that suits it",
		Cure:  "take the number from a map of what has been checked, or have a handler before the zone set the field",
		check: chosenNumber,
	},
	{
		Code: "SW009", Severity: Warning, Title: "The address is that of a proxy",
		Cause: "behind a proxy, the other end of the connection is the proxy for all clients",
		check: proxyAddress,
	},
	{
		Code: "SW010", Severity: Error, Title: "Every client is trusted as a proxy",
		Cause: "who is in trusted_proxies chooses its own address with a header field",
		Cure:  "name the networks of your proxies alone in trusted_proxies",
		check: trustsAll,
	},
	{
		Code: "SW011", Severity: Warning, Title: "The first address of X-Forwarded-For counts",
		Cause: "proxies append to the field, so that its first address is what the client has written there",
		Cure:  "add trusted_proxies_strict to the block of servers",
		check: notStrict,
	},
	{
		Code: "SW012", Severity: Warning, Title: "The limit never decides",
		Cause: "another limit is always reached first",
		Cure:  "take the limit out, or lower it",
		check: neverDecides,
	},
	{
		Code: "SW013", Severity: Error, Title: "The cost is above the limit",
		Cause: "a request spends more than there ever is, so that none passes",
		Cure:  "raise the limit, or lower cost",
		check: costAboveLimit,
	},
	{
		Code: "SW014", Severity: Warning, Title: "The option does nothing with store memory",
		Cause: "the memory store is not shared, cannot be away and keeps its counters in one way",
		Cure:  "take the option out, or set store redis",
		check: withoutEffect,
	},
	{
		Code: "SW015", Severity: Warning, Title: "Two Caddys cannot divide the limit",
		Cause: "a limit is divided in whole units, and each Caddy of a fleet needs some of them",
		check: notDivisible,
	},
	{
		Code: "SW016", Severity: Warning, Title: "The store may answer after the server has given up",
		Cause: "write_timeout counts from the end of the request's header, and cuts off an answer that waited for the store",
		Cure:  "lower timeout of the store, or raise the write timeout of the server",
		check: slowerThanServer,
	},
	{
		Code: "SW017", Severity: Note, Title: "A restart forgets a long window",
		Cause: "store memory keeps counters as long as the process, and an upgrade of Caddy is a restart",
		Cure:  "set store redis, or take a window of 1d or less",
		check: forgets,
	},
	{
		Code: "SW018", Severity: Warning, Title: "A secret is in clear text",
		Cause: "the admin API and caddy adapt show it, as they do what {$NAME} puts there",
		Cure:  "write {env.NAME} or {file./path} in its place",
		check: clearSecrets,
	},
	{
		Code: "SW019", Severity: Note, Title: "The algorithm is large for the limit",
		Cause: "zset keeps an entry for each unit: at this limit, more than thirty times the memory of log",
		Cure:  "write algorithm log, which is as exact",
		check: largeEntries,
	},
	{
		Code: "SW020", Severity: Note, Title: "Two zones share one counter",
		Cause: "zones of one name on one store are one zone, so that a client spends the limit in both places together",
		Cure:  "rename one of them, or keep them in a snippet if one limit for both places is meant",
		check: sharedByName,
	},
	{
		Code: "SW021", Severity: Warning, Title: "One address sends most of the requests", NeedsLog: true,
		Cause: "more than half of the requests in the log come from one address, as behind a proxy that Caddy does not know",
		Cure:  "name the proxy in trusted_proxies, if it is one; otherwise leave the client out of the log",
		check: oneAddress,
	},
	{
		Code: "SW022", Severity: Warning, Title: "The limit denies much", NeedsLog: true,
		Cause: "more than one request in a hundred of the log would have been denied",
		Cure:  "look at who is denied with caddy sliding-window replay; raise the limit if they are no abusers",
		check: deniesMuch,
	},
	{
		Code: "SW023", Severity: Note, Title: "The limit is far away", NeedsLog: true,
		Cause: "in the whole log no key has used more than a tenth of it, so that it stops an attack late",
		Cure:  "take a lower one from caddy sliding-window suggest, or leave it as a bound for the worst case",
		check: neverNear,
	},
	{
		Code: "SW024", Severity: Error, Title: "Failed log-ins do not come to the zone",
		Cause: "the handler that authenticates answers them before the zone, so that count_if never sees its 401",
		Cure:  "write sliding_window before the authentication, where it is without a route",
		check: behindLogin,
	},
	{
		Code: "SW025", Severity: Warning, Title: "A ban of an address hits all who share it",
		Cause: "an office or a mobile network is one address, so that one client has all of them banned",
		Cure:  "count with count_if what only an attacker does, or write a key that tells persons apart, such as {http.auth.user.id} behind an authentication",
		check: sharedBan,
	},
}
