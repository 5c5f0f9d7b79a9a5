package slidingwindow

import (
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
)

// Zone is a named quota: what is counted, by which key, and how much of it may
// pass. The same zone in two places of a configuration is one shared counter.
type Zone struct {
	// The name, in headers, logs, metrics and in the name of the counter:
	// letters, digits, `_`, `-` and `.`; 64 at most. A renamed zone starts afresh.
	Name string `json:"name"`

	// Only requests that match are counted. Inside handle_path, paths are without the
	// stripped prefix. Default: all.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// What has a quota of its own; placeholders are allowed. `all` counts all requests
	// together; the log warns of other text without a placeholder. Default:
	// `{http.vars.client_ip}`.
	Key string `json:"key,omitempty"`

	// The limits; all of them hold. Default: none, which takes `concurrent`.
	Limits []Limit `json:"limits,omitempty"`

	// How many requests of a key may be open at the same time, beside the limits, all or nothing, or alone. Not with
	// `lease`, nor with gcra and `native on`; without limits, not with options that say how units are counted. Default: any
	// number.
	Concurrent *Concurrent `json:"concurrent,omitempty"`

	// The limit that holds instead of one whose placeholders give no valid value.
	// Required if a limit has placeholders, and has none itself.
	Fallback *Limit `json:"fallback,omitempty"`

	// How the history is kept. Default: zset.
	Algorithm *Algorithm `json:"algorithm,omitempty"`

	// Only for gcra with 3 limits at most, and for slices with a count of 3 at most and
	// one limit: how many keys are expected to count at any one time. A redis store
	// then keeps about 48 of them in one small hash, which takes less than half of the
	// memory for millions of keys and a little more of the server's time. More than
	// twice the expected keys take the memory that they take without pack. All Caddys
	// must have the same number: counters start afresh under another one. `native` and
	// `pack` cannot be combined. The memory store ignores `pack`.
	// Default: each counter is a key of its own.
	Pack Value `json:"pack,omitempty"`

	// Units that a request spends; 0 looks without spending. Placeholders are
	// allowed; one that gives no whole number of 0 or more counts as 1. Default: 1.
	Cost Value `json:"cost,omitempty"`

	// Leading bits by which keys that are IPv4 addresses are grouped. Default: 32.
	IPv4Prefix *int `json:"ipv4_prefix,omitempty"`

	// Leading bits by which keys that are IPv6 addresses are grouped. Default: 64,
	// which one subscriber owns.
	IPv6Prefix *int `json:"ipv6_prefix,omitempty"`

	// Lower-cases the values of the key's placeholders, and takes blanks off both ends.
	// Set it if a client can write a value in several ways that the back end takes for
	// the same, as with `{http.request.header.Authorization}`. Hosts are lower-cased
	// without it. Default: values count as they are.
	FoldCase bool `json:"fold_case,omitempty"`

	// What to do when the key is empty: `shared` counts all such
	// requests together, `skip` does not count them, `deny` denies them. Default:
	// `shared`, and a warning in the log, once a minute at most.
	EmptyKey string `json:"empty_key,omitempty"`

	// Only with `empty_key` `deny`: the status of such a denial, such as 401. Default: the
	// `status` of the handler.
	EmptyKeyStatus int `json:"empty_key_status,omitempty"`

	// How much of the limit an instance may take ahead, to let requests of a busy
	// key pass without asking a redis store each time. The limit holds as strictly.
	// Units that one instance has taken are not there for the others. When an instance
	// is killed, the units of its lease may be lost for one window, or pass beside the
	// limit. For zset, log and strict slices. A request that several zones count is not
	// leased. The memory store ignores `lease`. Default: nothing.
	Lease *Lease `json:"lease,omitempty"`

	// Counts only requests whose answers match. A request is charged when it comes, so that
	// parallel ones cannot slip through, and what it spent is given back at that very time as soon
	// as the status of its answer is known not to match. Status codes of one digit stand for a
	// class. Answers of sliding_window itself do not count; a client that hangs up before the
	// status is known does. Not with `lease` or `gcra`. Default: all requests count.
	CountIf *caddyhttp.ResponseMatcher `json:"count_if,omitempty"`

	// Charges what the answer says that its request cost. The cost, or what the request's body
	// announces, is reserved when the request comes, at most the smallest limit of all zones of the
	// handler that settle; the difference is given back at that very time, or charged above the limit if need be, once the answer
	// tells. Header fields show the reservation. Not with `lease`, `gcra` or `count_if`.
	// Default: a request costs what `cost` says.
	Settle *Settle `json:"settle,omitempty"`

	// Whether the zone denies: `on`; `shadow` counts what it would deny, in metrics and the
	// access log, and lets everything pass; `mark` decides as `on` does, lets everything pass, and tells later handlers
	// by `{http.sliding_window.<zone>.allowed}`; a percentage, such as `25%`, denies clients
	// with that share of the keys, and counts the others as `shadow` does. A key is in or
	// out on every Caddy, and stays in when the percentage rises. Below 100% the zone is no
	// defence: a client that chooses its key can choose one that is out. Requests that `shadow` or a percentage does not deny are
	// counted beside the handlers that follow, on counters and connections of their own;
	// with the memory store a key starts afresh when it comes to be denied. Default: `on`.
	Enforce string `json:"enforce,omitempty"`

	// Scales limits by the CPU, memory or answer times of this Caddy: they fall at once when it is
	// loaded, and rise slowly. Limits with windows longer than `60s` stay as they are, and one at least
	// has to be shorter. Each Caddy has a factor of its own. Not with `lease` or `gcra`. Default: limits
	// do not follow the load.
	Load *Load `json:"load,omitempty"`

	// From when on an operator should know that the zone denies much. Zones of one name have one
	// alert, and its state outlives reloads. Default: no alert.
	Alert *Alert `json:"alert,omitempty"`

	// Denies all requests of a key for a time once the zone has denied some. Default: no bans.
	Ban *Ban `json:"ban,omitempty"`

	// Notes which keys are denied most, and which are charged most, in the last one to two
	// minutes, for `caddy sliding-window top`: 256 keys of each kind, in 160 KiB. With `hash_keys`
	// their hashes are kept, and otherwise their first 64 bytes. Default: nothing is noted.
	TopTalkers bool `json:"top_talkers,omitempty"`

	// Where a Caddyfile has the zone, what is wrong if the zone has no fallback, and where the first limit with a tier is, and
	// concurrent.
	writtenAt            string
	errNoFallback        error
	tierAt, concurrentAt string

	c *compiled.Settings // made by check

	// Set by Provision: the matchers, of which Caddy drops the JSON; what is most likely a mistake; and the paths that
	// never match because a prefix was stripped.
	matchers     caddyhttp.MatcherSets
	matchersJSON caddyhttp.RawMatcherSets
	mistakes     []placeholders.Mistake
	unseen       []string
	takenOff     string
}
