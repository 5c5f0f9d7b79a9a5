// Package lint finds in a configuration that loads what is most likely a mistake in its limits, and says what to
// write instead. Rules and their codes are in one table, see [Rules]. Nothing is started, and nothing is written.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
)

// Handler is implemented by handlers with zones.
type Handler interface {
	Lint() *HandlerFacts
}

// HandlerFacts are what a handler that is provisioned says of itself.
type HandlerFacts struct {
	Zones []*ZoneFacts
	// Store is what the module of the store says, and ID what it shares counters by.
	Store StoreFacts
	ID    engine.StoreID
	// IsRemote reports whether the store is shared by several Caddys.
	IsRemote bool
	// Share is whether instances divide limits while the store is away.
	Share bool
}

// StoreFacts are what the module of a store says of itself.
type StoreFacts struct {
	// Timeout is the longest that a request waits for the store; 0 if it does not wait.
	Timeout time.Duration
	// Secrets are the options that hold a secret in clear text.
	Secrets []string
}

// ZoneFacts are what a zone that is provisioned says of itself.
type ZoneFacts struct {
	*compiled.Settings
	KeyText string
	// Matchers are those of the zone, and MatcherText their JSON.
	Matchers    caddyhttp.MatcherSets
	MatcherText string
	Mistakes    []placeholders.Mistake
	// UnseenPaths can never match, because TakenOff is no longer there.
	UnseenPaths []string
	TakenOff    string
}

// Severity says how bad a finding is.
type Severity string

// The severities. An error is a limit that does not do what it says, whatever is around Caddy; a warning depends on
// what is around it, or has a price.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Finding is what a rule has found.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"` // empty if the lines are not known
	Line     int      `json:"line,omitempty"`
	Zone     string   `json:"zone,omitempty"`
	What     string   `json:"what"`
	Cause    string   `json:"cause"`
	Cure     string   `json:"cure"`
	Link     string   `json:"link"`
}

// Report has the findings by file and line.
type Report struct {
	Findings []Finding `json:"findings"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Notes    int       `json:"notes"`
}

// page has a section for each rule.
const page = "https://github.com/slidingwindow/caddy-sliding-window/blob/main/docs/lint.md#"

// Check applies all rules to a configuration. The source may be nil.
func Check(c *Config, source *written.Source) *Report {
	if source == nil {
		source = new(written.Source)
	}
	c.source = source
	var all []Finding
	unreached := make(map[*zone]bool) // they have one finding
	for _, z := range c.zones {
		unreached[z] = unreachable(c, z) != nil
	}
	for i, rule := range Rules {
		for _, z := range c.zones {
			if i > 0 && unreached[z] {
				continue
			}
			for _, p := range rule.check(c, z) {
				f := rule.finding(p)
				if p.isOfZone() {
					f.Zone = z.Name
				}
				at := c.place(z, p)
				f.File, f.Line = at.File, at.Line
				if !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		}
	}
	all = c.ignore(all)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code))
	})
	r := &Report{Findings: append([]Finding{}, all...)}
	for _, f := range all {
		switch f.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	return r
}

// ignore drops the findings that comments tell to ignore, and finds comments that are wrong.
func (c *Config) ignore(all []Finding) []Finding {
	wrong := func(g *written.Ignore, format string, args ...any) {
		f := ignoreRule.finding(problem{what: fmt.Sprintf(format, args...)})
		f.File, f.Line = g.At.File, g.At.Line
		all = append(all, f)
	}
	for i := range c.source.Ignores {
		g := &c.source.Ignores[i]
		rule := slices.IndexFunc(Rules, func(r Rule) bool { return r.Code == g.Code })
		covered := func(f Finding) bool { return f.Code == g.Code && g.Covers(written.Place{File: f.File, Line: f.Line}) }
		switch {
		case rule < 0:
			wrong(g, "lint:ignore %s: there is no such rule", g.Code)
		case g.Reason == "":
			wrong(g, "lint:ignore %s: the reason is missing", g.Code)
		case Rules[rule].NeedsLog && c.log == nil:
		case !slices.ContainsFunc(all, covered):
			wrong(g, "lint:ignore %s: the rule finds nothing on the line that the comment is about", g.Code)
		default:
			all = slices.DeleteFunc(all, covered)
		}
	}
	return all
}

// place returns the line of a problem.
func (c *Config) place(z *zone, p problem) written.Place {
	zones := c.source.Named(z.Name, z.flow.hosts)
	if p.at.Line > 0 {
		return p.at
	}
	if len(zones) == 0 {
		return written.Place{}
	}
	switch {
	case p.global != "":
		if places := c.source.Global[p.global]; len(places) > 0 {
			return places[0]
		}
	case p.store != "":
		return c.source.OfStore(zones[0], p.store)
	case p.handler != "":
		if places := zones[0].Handler[p.handler]; len(places) > 0 {
			return places[0]
		}
		if places := c.source.Global["sliding_window."+p.handler]; len(places) > 0 {
			return places[0]
		}
	}
	return zones[0].Option(p.option, p.nth)
}
