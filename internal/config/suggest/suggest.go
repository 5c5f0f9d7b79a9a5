// Package suggest refuses words of a configuration that are in the wrong place or come from other rate
// limiters, and says what to write.
package suggest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
)

// The places where options are written.
const (
	InGlobal  = "the global option sliding_window"
	InHandler = "sliding_window"
	InZone    = "a zone"
)

// Words are the words that have a place.
type Words struct {
	ZoneOptions, Algorithms []string
	// AlgorithmOf returns the algorithm that an option belongs to; empty for others.
	AlgorithmOf func(option string) string
}

var (
	handlerOptions = []string{"zone", "store", "on_error", "status", "headers", "errors", "jitter", "log_key"}
	globalOptions  = []string{"store", "on_error"}
)

// Unknown refuses the option at the cursor of d, which there is not at a place, and
// says what was probably meant.
func (w Words) Unknown(d *caddyfile.Dispenser, place string) error {
	of, options := " of "+place, handlerOptions
	switch place {
	case InZone:
		of, options = "", w.ZoneOptions
	case InGlobal:
		options = globalOptions
	}
	if cure := w.meantOption(d.Val(), place, PeekArgs(d)); cure != "" {
		return d.Errf("unrecognized subdirective %q%s; %s", d.Val(), of, cure)
	}
	return NoOption(d, of, options)
}

// meantOption returns what to write in the place of an option with its arguments, or
// nothing if that is not known.
func (w Words) meantOption(option, place string, args []string) string {
	line := strings.Join(append([]string{option}, args...), " ")
	owner := w.AlgorithmOf(option)
	switch {
	case place != InZone && slices.Contains(w.ZoneOptions, option):
		return fmt.Sprintf("it is an option of a zone: write zone <name> { %s }", line)
	case place == InGlobal && slices.Contains(handlerOptions, option):
		return "it is an option of the directive sliding_window: write it there"
	case place == InZone && slices.Contains(handlerOptions, option):
		return fmt.Sprintf("it is an option of sliding_window: write %s outside of the zone", option)
	case owner != "":
		return fmt.Sprintf("it is an option of an algorithm: write algorithm %s { %s } in a zone", owner, line)
	case slices.Contains(w.Algorithms, option):
		return "it is an algorithm: write " + w.Algorithm(option, args) + " in a zone"
	case option == "redis" || option == "memory":
		return "it is a store: write store " + option
	case option == "events":
		return fmt.Sprintf("write limit %s <window> in a zone, which takes the place of events and window", argOr(args, "<max>"))
	case option == "window":
		return fmt.Sprintf("write limit <max> %s in a zone, which takes the place of events and window", argOr(args, "<window>"))
	}
	return foreign.Meaning(foreign.Option, option)
}

// Algorithm returns how an algorithm is written whose options follow its name.
func (w Words) Algorithm(name string, args []string) string {
	line := "algorithm " + name
	switch {
	case len(args) == 0:
		return line
	case w.AlgorithmOf(args[0]) == name:
		return line + " { " + strings.Join(args, " ") + " }"
	case len(args) > 1:
		return line
	}
	_, errNumber := quantity.Int(args[0])
	_, errLength := quantity.Duration(args[0])
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

// PeekArgs returns the arguments that follow the cursor, and leaves it where it is.
func PeekArgs(d *caddyfile.Dispenser) []string {
	args := d.RemainingArgs()
	for range args {
		d.Prev()
	}
	return args
}

// CheckMatch reports words after an option with matchers, such as match, that name none.
func CheckMatch(option string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	switch first := words[0]; {
	case strings.HasPrefix(first, "@"):
		return fmt.Errorf("%s %s: named matchers are not known in a zone; write %[1]s { <matchers> }, or sliding_window %[2]s { ... }", option, first)
	case strings.HasPrefix(first, "/"):
		return fmt.Errorf("%s %s: the name of the matcher is missing; write %[1]s path %[2]s", option, first)
	case first == "*":
		return fmt.Errorf("%s *: would match every request; name those that are meant, or take %[1]s out", option)
	}
	return nil
}

// unknownMatcher is how Caddy says that a word names no matcher.
var unknownMatcher = regexp.MustCompile(`^getting matcher module '([^']+)'`)

// MatchError is an error in the block of an option with matchers, with what was meant by a word that names none.
func MatchError(d *caddyfile.Dispenser, option string, err error) error {
	if word := unknownMatcher.FindStringSubmatch(err.Error()); word != nil {
		if meant := CheckMatch(option, word[1:]); meant != nil {
			return d.WrapErr(meant)
		}
		var matchers []string
		for _, m := range caddy.GetModules("http.matchers") {
			matchers = append(matchers, m.ID.Name())
		}
		if meant := foreign.Nearest(word[1], matchers); meant != "" {
			return d.Errf("%s: unrecognized matcher %q; write %s", option, word[1], meant)
		}
	}
	return err
}

const StoreModules = "http.sliding_window.stores"

// CheckStoreModule reports a store of JSON that there is not.
func CheckStoreModule(raw json.RawMessage) error {
	var store struct {
		Module string `json:"module"`
	}
	if err := json.Unmarshal(raw, &store); err != nil || store.Module == "" {
		return nil // Caddy has the reason
	}
	return CheckStoreName(store.Module)
}

// CheckStoreName reports a store that there is not.
func CheckStoreName(name string) error {
	if _, err := caddy.GetModule(StoreModules + "." + name); err == nil {
		return nil
	}
	switch foreign.Meaning(foreign.Store, name) {
	case "redis":
		return fmt.Errorf("store %s is unknown; write store redis, which works with all servers that speak the protocol of Redis", name)
	case "memory":
		return fmt.Errorf("store %s is unknown; write store memory, or take store out", name)
	}
	if strings.Contains(name, "://") { // may hold a password
		return errors.New("the name of the store is missing; write store redis <url>")
	}
	var known []string
	for _, m := range caddy.GetModules(StoreModules) {
		known = append(known, m.ID.Name())
	}
	return fmt.Errorf("store %q is unknown; use one of %s", name, strings.Join(known, ", "))
}

// Seen are the options of a block, each of which may be given once.
type Seen map[string]bool

// Once refuses the option at d if it was there before.
func (s Seen) Once(d *caddyfile.Dispenser) error {
	if s[d.Val()] {
		return d.Errf("%s is given twice; keep one", d.Val())
	}
	s[d.Val()] = true
	return nil
}
