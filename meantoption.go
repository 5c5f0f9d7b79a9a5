package slidingwindow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// The places where options are written.
const (
	placeGlobal  = "the global option sliding_window"
	placeHandler = "sliding_window"
	placeZone    = "a zone"
)

var handlerOptions = []string{"zone", "store", "on_error", "status", "headers", "jitter", "log_key"}

// foreignOptions are words of other rate limiters, and what to do about them.
var foreignOptions = map[string]string{
	"distributed":    "write store redis in sliding_window, or in the global option sliding_window",
	"read_interval":  "take it out: each request asks the store",
	"write_interval": "take it out: each request is counted at once",
	"purge_age":      "take it out: keys expire by themselves",
	"sweep_interval": "take it out: keys expire by themselves",
	"storage":        "write store memory or store redis",
	"nodelay":        "take it out: no request is delayed",
	"delay":          "take it out: no request is delayed",
	"rate":           "write limit <max> <window> in a zone",
	"average":        "write limit <max> <window> in a zone",
	"requests":       "write limit <max> <window> in a zone",
	"max":            "write limit <max> <window> in a zone",
	"period":         "write limit <max> <window> in a zone",
}

// errOption refuses the option at the cursor of d, which there is not at a place, and
// says what was probably meant.
func errOption(d *caddyfile.Dispenser, place string) error {
	option := d.Val()
	text := fmt.Sprintf("unrecognized subdirective %q", option)
	if place != placeZone {
		text += " of " + place
	}
	if cure := meantOption(option, place, peekArgs(d)); cure != "" {
		text += "; " + cure
	}
	return d.Err(text)
}

// meantOption returns what to write in the place of an option with its arguments, or
// nothing if that is not known.
func meantOption(option, place string, args []string) string {
	line := strings.Join(append([]string{option}, args...), " ")
	owner := algorithmOf(option)
	switch {
	case place != placeZone && slices.Contains(zoneOptionNames(), option):
		return fmt.Sprintf("it is an option of a zone: write zone <name> { %s }", line)
	case place == placeGlobal && slices.Contains(handlerOptions, option):
		return "it is an option of the directive sliding_window: write it there"
	case place == placeZone && slices.Contains(handlerOptions, option):
		return fmt.Sprintf("it is an option of sliding_window: write %s outside of the zone", option)
	case owner != "":
		return fmt.Sprintf("it is an option of an algorithm: write algorithm %s { %s } in a zone", owner, line)
	case slices.Contains(algorithmNames, option):
		return "it is an algorithm: write " + meantAlgorithm(option, args) + " in a zone"
	case option == "redis" || option == "memory":
		return "it is a store: write store " + option
	case option == "events":
		return fmt.Sprintf("write limit %s <window> in a zone, which takes the place of events and window", argOr(args, "<max>"))
	case option == "window":
		return fmt.Sprintf("write limit <max> %s in a zone, which takes the place of events and window", argOr(args, "<window>"))
	}
	return foreignOptions[option]
}

// meantAlgorithm returns how an algorithm is written whose options follow its name.
func meantAlgorithm(name string, args []string) string {
	line := "algorithm " + name
	switch {
	case len(args) == 0:
		return line
	case algorithmOf(args[0]) == name:
		return line + " { " + strings.Join(args, " ") + " }"
	case len(args) > 1:
		return line
	}
	_, errNumber := Value(args[0]).int()
	_, errLength := Value(args[0]).duration()
	switch {
	case name == "slices" && errNumber == nil:
		return line + " { count " + args[0] + " }"
	case name == "slices" && errLength == nil:
		return line + " { size " + args[0] + " }"
	case name == "gcra" && errNumber == nil:
		return line + " { burst " + args[0] + " }"
	}
	return line
}

// argOr returns the only argument, or a text if that is not known.
func argOr(args []string, text string) string {
	if len(args) == 1 {
		return args[0]
	}
	return text
}

// peekArgs returns the arguments that follow the cursor, and leaves it where it is.
func peekArgs(d *caddyfile.Dispenser) []string {
	args := d.RemainingArgs()
	for range args {
		d.Prev()
	}
	return args
}

// checkWrittenMatch reports words after match that name no matcher.
func checkWrittenMatch(words []string) error {
	if len(words) == 0 {
		return nil
	}
	switch first := words[0]; {
	case strings.HasPrefix(first, "@"):
		return fmt.Errorf("match %s: named matchers are not known in a zone; write match { <matchers> }, or sliding_window %[1]s { ... }", first)
	case strings.HasPrefix(first, "/"):
		return fmt.Errorf("match %s: the name of the matcher is missing; write match path %[1]s", first)
	case first == "*":
		return errors.New("match *: a zone without match counts every request; take match out")
	}
	return nil
}

// unknownMatcher is how Caddy says that a word names no matcher.
var unknownMatcher = regexp.MustCompile(`^getting matcher module '([^']+)'`)

// errMatch is an error in the block of match, with what was meant by a word that names no
// matcher.
func errMatch(d *caddyfile.Dispenser, err error) error {
	if word := unknownMatcher.FindStringSubmatch(err.Error()); word != nil {
		return cmp.Or(wrap(d, checkWrittenMatch(word[1:])), err)
	}
	return err
}

const storeModules = "http.sliding_window.stores"

// checkStoreModule reports a store of JSON that there is not.
func checkStoreModule(raw json.RawMessage) error {
	var store struct {
		Module string `json:"module"`
	}
	if err := json.Unmarshal(raw, &store); err != nil || store.Module == "" {
		return nil // Caddy has the reason
	}
	return checkStoreName(store.Module)
}

// checkStoreName reports a store that there is not.
func checkStoreName(name string) error {
	if _, err := caddy.GetModule(storeModules + "." + name); err == nil {
		return nil
	}
	switch strings.ToLower(name) {
	case "valkey", "keydb", "dragonfly", "redict", "garnet", "rediss", "sentinel", "cluster", "redis-cluster", "redis_cluster", "redis":
		return fmt.Errorf("store %s is unknown; write store redis, which works with all servers that speak the protocol of Redis", name)
	case "local", "mem", "in-memory", "inmemory", "in_memory", "none", "off":
		return fmt.Errorf("store %s is unknown; write store memory, or take store out", name)
	}
	if strings.Contains(name, "://") { // may hold a password
		return errors.New("the name of the store is missing; write store redis <url>")
	}
	var known []string
	for _, m := range caddy.GetModules(storeModules) {
		known = append(known, m.ID.Name())
	}
	return fmt.Errorf("store %q is unknown; use one of %s", name, joinWords(known))
}
