package suggest

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// syntax says how options of sliding_window are written.
var syntax = map[string]string{
	"sliding_window": "sliding_window { ... }", // the global option

	"zone":        "zone <name> { ... }",
	"store":       "store redis, or store memory",
	"on_error":    "on_error " + oneOf(control.OnErrors),
	"share":       "share alone",
	"status":      "status <code>",
	"headers":     "headers ietf, legacy, both or none",
	"errors":      "errors problem, openai or anthropic",
	"jitter":      "jitter <share>, such as jitter 0.2",
	"log_key":     "log_key alone",
	"key":         "key <text>, in quotes if it holds spaces",
	"limit":       "limit <max> <window>, such as limit 100 1m",
	"fallback":    "fallback <max> <window>, such as fallback 100 1m",
	"cost":        "cost <units>",
	"pack":        "pack <expected keys>",
	"lease":       "lease <units> [<ttl>]",
	"concurrent":  "concurrent <max>, such as concurrent 4",
	"ipv4_prefix": "ipv4_prefix <bits>",
	"ipv6_prefix": "ipv6_prefix <bits>",
	"fold_case":   "fold_case alone",
	"empty_key":   "empty_key shared, skip, deny, or deny <status>",
	"enforce":     "enforce on, shadow, mark, or a percentage such as 25%",
	"top_talkers": "top_talkers alone",

	"algorithm": "algorithm zset, log, stream, slices or gcra",
	"count":     "count <slices in a window>",
	"size":      "size <length of a slice>",
	"layers":    "layers <coarse> <fine>, such as layers 10s 1s",
	"adaptive":  "adaptive <min> <max>, such as adaptive 100ms 2s",
	"strict":    "strict alone",
	"weighted":  "weighted alone",
	"burst":     "burst <units>",
	"native":    "native auto, on or off",
	"fields":    "fields <name> <value> ...",
	"keep":      "keep <duration>",
	"max_value": "max_value <bytes>",
	"max_entry": "max_entry <bytes>",

	"usage":        "usage openai, or usage anthropic",
	"header":       "header <name> [strip]",
	"json":         "json <path>, such as json usage.total_tokens",
	"reserve_json": "reserve_json <field> ...",
	"reserve_body": "reserve_body <bytes>",
	"reserve_max":  "reserve_max <units>",
	"on_missing":   "on_missing keep, refund, or a number of units",
	"on_abort":     "on_abort keep, refund, or a number of units",
	"max":          "max <units>",

	"ban":    "ban <length> { ... }, such as ban 10m",
	"silent": "silent alone",

	"denied": "denied <percentage>, such as denied 10%",
	"over":   "over <duration>, such as over 1m",
	"min":    "min <requests>",

	"floor":   "floor <percentage>, such as floor 30%",
	"ceiling": "ceiling <percentage>, such as ceiling 120%",
	"recover": "recover <duration>, such as recover 1m",
}

// ArgErr refuses the number of words of the option whose line the cursor of d is on, and says how the option
// is written.
func ArgErr(d *caddyfile.Dispenser) error { return ArgErrOf(d, syntax) }

// ArgErrOf does so with the options that have their syntax in a map.
func ArgErrOf(d *caddyfile.Dispenser, syntax map[string]string) error {
	words := upToCursor(d)
	if (words[0] == "settle" || words[0] == "load") && len(words) > 1 {
		words = words[1:]
	}
	text := syntax[words[0]]
	switch {
	case text == "" || d.Val() == "{":
		return d.ArgErr()
	case len(words)-1+len(PeekArgs(d)) < least(text):
		return d.Errf("an argument is missing after '%s'; write %s; is a {$VARIABLE} empty?", d.Val(), text)
	}
	return d.Errf("wrong argument count or unexpected line ending after '%s'; write %s", d.Val(), text)
}

// least returns how many arguments an option has at least, by its syntax.
func least(syntax string) int {
	for _, end := range []string{",", " [", " {", " ...", " alone"} {
		syntax, _, _ = strings.Cut(syntax, end)
	}
	if values := strings.Count(syntax, "<"); values > 0 {
		return values
	}
	return len(strings.Fields(syntax)) - 1 // words to choose from
}

// upToCursor returns the words of the line up to the cursor of d, one at least.
func upToCursor(d *caddyfile.Dispenser) []string {
	words, line := []string{d.Val()}, d.Line()
	for d.Prev() && d.Line() == line {
		words = append([]string{d.Val()}, words...)
	}
	for range words {
		d.Next()
	}
	return words
}
