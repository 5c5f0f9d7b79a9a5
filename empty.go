package slidingwindow

import (
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/template"
)

// noValue is an option of a zone whose placeholders can come out empty: without a value
// in a request. Several are a set.
type noValue uint8

const (
	noKey noValue = 1 << iota
	noLimit
	noCost
)

// valueOptions are the options one by one, with the effect of having no value.
var valueOptions = [...]struct {
	option       noValue
	name, effect string
}{
	{noKey, "key", "all such requests share one counter"},
	{noLimit, "limit", "fallback holds, unless the rest of the text is a limit"},
	{noCost, "cost", "1 is charged, unless the rest of the text is a number"},
}

// noteEmpty counts options of a zone that came out empty, and tells the operator once a
// minute: clients may send such requests as often as they like. An empty key that
// empty_key is written for is no news.
func (h *Handler) noteEmpty(z *Zone, options noValue, req *request) {
	for i, o := range valueOptions {
		if options&o.option == 0 {
			continue
		}
		z.counters.empty[i].Inc()
		if o.option == noKey && z.EmptyKey != "" || !z.use.noValueLog[i].Due(time.Minute) {
			continue
		}
		name := z.emptyName(o.name, req)
		h.logger.Warn("placeholder has no value in a request",
			zap.String("zone", z.Name), zap.String("option", o.name), zap.String("placeholder", "{"+name+"}"),
			zap.String("effect", o.effect), zap.String("usual_cause", template.UsualCause(name)))
	}
}

// emptyName returns the first placeholder of an option that has no value in the request, or
// none that counts: a host can be a dot.
func (z *Zone) emptyName(option string, req *request) (first string) {
	for _, use := range z.names() {
		if use.option != option {
			continue
		}
		if template.OwnValue(use.name, template.Value(use.name, req.vars, req.repl)) == "" {
			return use.name
		}
		if first == "" {
			first = use.name
		}
	}
	return first
}
