package placeholders

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
)

// EmptyOptions are options of a zone whose placeholders came out empty: without a value
// in a request. Several are a set.
type EmptyOptions uint8

// The options.
const (
	NoKey EmptyOptions = 1 << iota
	NoLimit
	NoCost
)

// options are the Options one by one, with the effect of having no value.
var options = [...]struct {
	option       EmptyOptions
	name, effect string
}{
	{NoKey, "key", "all such requests share one counter"},
	{NoLimit, "limit", "fallback holds, unless the rest of the text is a limit"},
	{NoCost, "cost", "1 is charged, unless the rest of the text is a number"},
}

// Due says when the log may tell again that an option came out empty. The zero value is ready.
type Due [len(options)]uptime.Rare

// Empty counts options of a zone that came out empty by mistake, and tells the operator once a
// minute: clients may send such requests as often as they like. It is safe for concurrent use.
type Empty struct {
	zone     string
	uses     []Use
	expected bool // empty_key is configured, so that an empty key is not logged
	due      *Due
	counters [len(options)]prometheus.Counter
}

// NewEmpty returns the Empty of a zone with these placeholders. expected says whether the zone has empty_key. due
// is the same for all handlers with the zone.
func NewEmpty(zone string, uses []Use, expected bool, due *Due) *Empty {
	e := &Empty{zone: zone, uses: uses, expected: expected, due: due}
	for i, o := range options {
		e.counters[i] = metrics.NoValueTotal.WithLabelValues(zone, o.name)
	}
	return e
}

// Note notes options that came out empty in a request with these variables.
func (e *Empty) Note(logger *zap.Logger, empty EmptyOptions, vars map[string]any, repl *caddy.Replacer) {
	for i, o := range options {
		if empty&o.option == 0 {
			continue
		}
		if o.option == NoKey && e.expected {
			continue
		}
		e.counters[i].Inc()
		if !e.due[i].Due(time.Minute) {
			continue
		}
		name := e.name(o.name, vars, repl)
		logger.Warn("placeholder has no value in a request",
			zap.String("zone", e.zone), zap.String("option", o.name), zap.String("placeholder", template.Short("{"+name+"}")),
			zap.String("effect", o.effect), zap.String("usual_cause", template.UsualCause(name)))
	}
}

// name returns the first placeholder of an option that has no value in the request, or
// none that counts: a host can be a dot.
func (e *Empty) name(option string, vars map[string]any, repl *caddy.Replacer) (first string) {
	for _, use := range e.uses {
		if use.Option != option && (use.Option != "concurrent" || option != "limit") {
			continue
		}
		if template.OwnValue(use.Name, template.Value(use.Name, vars, repl)) == "" {
			return use.Name
		}
		if first == "" {
			first = use.Name
		}
	}
	return first
}
