package soak_test

import (
	"fmt"
	"strings"
	"time"
)

// zone is a limit that the load spends on. Its name is the path of its requests.
type zone struct {
	name   string
	words  string // in the Caddyfile, beside name and key
	window time.Duration
	// most is how many may pass in any window.
	most int
}

// zones hold their limits strictly, whatever happens, unless they say otherwise.
var zones = []zone{
	{name: "zset", words: "limit 40 2s", window: 2 * time.Second, most: 40},
	{name: "log", words: "limit 40 2s\nalgorithm log", window: 2 * time.Second, most: 40},
	{name: "stream", words: "limit 40 2s\nalgorithm stream {\nfields who {header.X-Key}\n}", window: 2 * time.Second, most: 40},
	{name: "slices", words: "limit 40 2s\nalgorithm slices", window: 2 * time.Second, most: 40},
	{name: "layers", words: "limit 40 2s\nalgorithm slices {\nlayers 500ms 100ms\n}", window: 2 * time.Second, most: 40},
	{name: "adaptive", words: "limit 40 2s\nalgorithm slices {\nadaptive 20ms 500ms\n}", window: 2 * time.Second, most: 40},
	{name: "two_limits", words: "limit 30 1s\nlimit 40 2s", window: 2 * time.Second, most: 40},
	{name: "two_windows", words: "limit 30 1s\nlimit 40 2s", window: time.Second, most: 30},
	// What both Caddys have leased, and could not book at its end.
	{name: "leased", words: "limit 40 2s\nalgorithm log\nlease 5", window: 2 * time.Second, most: 40 + 2*5},
	// A full bucket, and what leaks in a window.
	{name: "gcra", words: "limit 40 2s\nalgorithm gcra", window: 2 * time.Second, most: 2*40 - 1},
	{name: "packed", words: "limit 40 2s\nalgorithm gcra\npack 1000", window: 2 * time.Second, most: 2*40 - 1},
	{name: "weighted", words: "limit 40 2s\nalgorithm slices {\ncount 10\nweighted\n}", window: 2 * time.Second, most: 2*40 - 1},
}

// The ledgers deny no request: what passes in them is compared with what is counted.
const (
	ledger      = "ledger"
	ledgerLocal = "ledger_local"
	ledgerLimit = 1_000_000_000
)

// caddyfile is one of the Caddys, at an address. The number is part of a zone that no request
// asks for. Another number makes a reload change the configuration.
func (w *world) caddyfile(address string, number int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `{
	admin {admin}
	persist_config off
	auto_https off
	metrics
	sliding_window {
		store redis {
			%s
			timeout %s
			pool_size %d
		}
		on_error deny
	}
}
http://%s {
`, w.store, timeout, poolSize, address)
	route := func(name, words, onError string) {
		fmt.Fprintf(&s, "handle /%s {\nsliding_window {\nzone %[1]s {\nkey {header.X-Key}\n%s\n}\n%s\n}\nrespond ok\n}\n", name, words, onError)
	}
	for _, z := range zones {
		route(z.name, z.words, "")
	}
	route(ledger, fmt.Sprintf("limit %d 1h\nalgorithm log", ledgerLimit), "")
	route(ledgerLocal, fmt.Sprintf("limit %d 1h\nalgorithm log", ledgerLimit), "on_error local")
	route("reloaded", fmt.Sprintf("limit %d 1h", 10+number), "")
	s.WriteString(w.streams.route())
	s.WriteString("}\n")
	return s.String()
}
