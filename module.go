// Package slidingwindow is a Caddy HTTP handler that limits the rate of requests
// in exact sliding windows, alone or, through Redis, across a fleet.
package slidingwindow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/adminapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	_ "github.com/slidingwindow/caddy-sliding-window/internal/cli" // registers `caddy sliding-window`
	"github.com/slidingwindow/caddy-sliding-window/internal/config/jsonform"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/dryrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	_ "github.com/slidingwindow/caddy-sliding-window/stores" // the stores that come with it
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The words for which fields an answer gets.
const (
	fieldsIETF   = "ietf"
	fieldsLegacy = "legacy"
	fieldsBoth   = "both"
	fieldsNone   = "none"
)

// The words for how the bodies of denials are written.
const (
	errorsProblem   = "problem"
	errorsOpenAI    = "openai"
	errorsAnthropic = "anthropic"
)

// apis are the APIs whose clients read the bodies.
var apis = map[string]*answer.API{errorsOpenAI: answer.OpenAI, errorsAnthropic: answer.Anthropic}

func init() {
	caddy.RegisterModule(Handler{})
	caddy.RegisterModule(adminapi.New(evaluate))
}

// Handler limits how many requests pass. A request is counted in every zone that
// applies to it, or in none: if one zone denies it, it costs nothing anywhere.
//
// It sets these placeholders, for later handlers, error routes and logs:
//
// Placeholder | Description
// ------------|-------------
// `{http.sliding_window.allowed}` | Whether the request passed
// `{http.sliding_window.zone}` | Name of the zone with the tightest limit; of a denied request, the one that denies longest
// `{http.sliding_window.limit}` | That limit
// `{http.sliding_window.remaining}` | Units left of it
// `{http.sliding_window.retry_after}` | Seconds until the same request would pass; 0 if it passed, or if waiting cannot help; 1 if no decision could be made
// `{http.sliding_window.reset_after}` | Seconds until all of the limit is left again
// `{http.sliding_window.<zone>.*}` | `allowed`, `limit`, `remaining`, `retry_after` or `reset_after` of one zone; of one that does not deny the request, what it would have decided, once that is known; with `enforce mark` at once
// `{http.sliding_window.<zone>.enforced}` | Whether the zone may deny the request
// `{http.sliding_window.<zone>.source}` | Where the limit comes from: `config`, `fallback`, `load`, `override` or `ban`; `away` if nothing was decided as the store is away
// `{http.sliding_window.override}` | The ID of the override that holds in the zone with the tightest limit, or exempts the request
// `{http.sliding_window.<zone>.override}` | The ID of the override of the key in one zone
type Handler struct {
	// The quotas, in order. One or more.
	Zones []*Zone `json:"zones"`

	// Where the counts are kept. Default: the store of the sliding_window app,
	// and without one the memory of this process.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=http.sliding_window.stores inline_key=module"`

	// What to do while the store is away: `local` enforces the limits on this
	// instance's own counts, which start from what the store was last known to have
	// counted, and are booked in it when it is back; `allow` lets requests pass
	// uncounted, `deny` answers 503, through the error routes if one of them answers.
	// Default: as the sliding_window app says, and without it `local`.
	OnError control.OnError `json:"on_error,omitempty"`

	// With `on_error` `local`: whether limits are divided, while the store is away, by
	// the number of instances that it was last seen to be shared by, rounded down to 1
	// at least. Default: false; without `on_error`, as the sliding_window app says.
	Share bool `json:"share,omitempty"`

	// The status of a denied request; `empty_key_status` of a zone goes before it.
	// Default: 429, or 503 where nothing but `concurrent` denies it, with a key that all requests share.
	Status int `json:"status,omitempty"`

	// Which fields answers get: `ietf` for RateLimit and RateLimit-Policy, one line
	// each, with the ten tightest limits at most, and quotas for whole seconds;
	// `legacy` for X-RateLimit-Limit, -Remaining and -Reset (in seconds from now),
	// `both` or `none`. Default: `ietf`.
	Headers string `json:"headers,omitempty"`

	// How the body of a denial is written: `problem` for problem details or plain text; `openai`
	// or `anthropic` as these APIs write errors, so that their clients show the message. Then answers
	// also get the fields of the API for the tightest limit of requests and of tokens, unless headers is
	// `none`, in the place of those of the back end; and a denial that waiting does not help within 60 s
	// has `X-Should-Retry: false`, so that these clients return at once. Default: `problem`.
	Errors string `json:"errors,omitempty"`

	// The share by which Retry-After is lengthened at most, at random, so that
	// clients do not all come back at once: 0.2 for up to a fifth. From 0 to 1.
	// Default: 0.
	Jitter float64 `json:"jitter,omitempty"`

	// Whether logs of denials hold the key. Keys can be personal data or secrets.
	// Default: false.
	LogKey bool `json:"log_key,omitempty"`

	module   StoreModule
	store    *openstore.SharedStore
	zones    []*zone.Live
	requests *request.Handler
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.sliding_window", New: func() caddy.Module { return new(Handler) }}
}

// UnmarshalJSON implements json.Unmarshaler. Its errors name the path of what is wrong, and what to write.
func (h *Handler) UnmarshalJSON(b []byte) error {
	type plain Handler
	return jsonform.Unmarshal(b, (*plain)(h))
}

// Provision implements caddy.Provisioner. It does not connect to anything.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.check(); err != nil {
		return err
	}
	value, err := ctx.App("sliding_window")
	if err != nil {
		return err
	}
	app := value.(*App)
	if h.StoreRaw != nil {
		h.module, err = loadStore(ctx, h, h.StoreRaw)
	} else {
		h.module, err = app.storeFor(ctx)
	}
	if err != nil {
		return err
	}
	store := h.module.Store()
	var openShadow func() window.Store // nil: the store keeps no counters of requests that are not denied
	if m, ok := h.module.(ShadowModule); ok {
		openShadow = m.ShadowStore
	}
	if h.OnError == "" {
		h.OnError, h.Share = app.OnError, h.Share || app.Share
	}
	if err := checkShare(h.OnError, h.Share); err != nil {
		return fmt.Errorf("sliding_window: %w", err)
	}
	h.store = openstore.Acquire(store, openShadow, h.OnError.Local())
	app.addStore(ctx, h.store.ID)
	var matchers []caddyhttp.MatcherSets
	for _, z := range h.Zones {
		use, err := app.addZone(h.store.ID, z.Name, z.definition(h.Share))
		if err != nil {
			return err
		}
		m, err := z.provision(ctx, use)
		if err != nil {
			return err
		}
		live, err := zone.New(z.c, use, zone.Options{Store: h.store, OnError: h.OnError, Share: h.Share, LogsKeys: h.LogKey})
		h.zones, matchers = append(h.zones, live), append(matchers, m) // Cleanup releases it
		if err != nil {
			return err
		}
		use.Note(h.decidesAlone(z) && z.c.Tiers == nil && z.c.Concurrent == nil, openShadow != nil)
		if z.c.Percent != enforce.All && z.c.Percent != enforce.Mark {
			if err := use.CheckShadow(); err != nil {
				return fmt.Errorf("zone %s: enforce %s: %w", z.Name, z.Enforce, err)
			}
		}
	}
	zone.Join(h.zones)
	busy := cmp.Or(h.Status, http.StatusServiceUnavailable)
	h.Status, h.Headers = cmp.Or(h.Status, http.StatusTooManyRequests), cmp.Or(h.Headers, fieldsIETF)
	h.requests = request.New(h.zones, matchers, request.Options{
		Store: h.store, OnError: h.OnError, Share: h.Share, Status: h.Status, Busy: busy, Jitter: h.Jitter, LogKey: h.LogKey, Logger: ctx.Logger(),
		IETF: h.Headers == fieldsIETF || h.Headers == fieldsBoth, Legacy: h.Headers == fieldsLegacy || h.Headers == fieldsBoth, API: apis[h.Errors],
	})
	if h.Share || slices.ContainsFunc(h.zones, func(z *zone.Live) bool { return z.Held || z.Concurrent != nil }) {
		app.join(h.store)
	}
	for _, z := range h.zones {
		for _, o := range z.Shared.Joins(z.Running.InBook) {
			h.store.Overrides.Preload(o, ctx.Storage())
		}
		app.running = append(app.running, z.Running)
	}
	return zone.RegisterMetrics(ctx.GetMetricsRegistry())
}

// check reports what is wrong with the handler as configured.
func (h *Handler) check() error {
	if len(h.Zones) == 0 {
		return errors.New("sliding_window: no zone: write zone <name> { ... }")
	}
	names := make(map[string]bool)
	for i, z := range h.Zones {
		if z == nil {
			return fmt.Errorf("zone number %d is null; take it out", i+1)
		}
		if err := z.check(); err != nil {
			return err
		}
		if names[z.Name] {
			return fmt.Errorf("zone %s: is given twice in one handler; rename one", z.Name)
		}
		names[z.Name] = true
	}
	for _, z := range h.Zones {
		if a := z.Algorithm; a != nil && a.Native == nativeOn && !h.decidesAlone(z) {
			return fmt.Errorf("zone %s: %w", z.Name, errNative(errors.New("there are other zones in the handler")))
		}
	}
	for _, err := range []error{
		checkOnError(h.OnError),
		checkWord("headers", h.Headers, "", fieldsIETF, fieldsLegacy, fieldsBoth, fieldsNone),
		checkWord("errors", h.Errors, "", errorsProblem, errorsOpenAI, errorsAnthropic),
		checkStatus(h.Status),
		checkJitter(h.Jitter),
	} {
		if err != nil {
			return fmt.Errorf("sliding_window: %w", err)
		}
	}
	return nil
}

// decidesAlone reports whether no other zone of the handler takes part in the decisions on requests that
// the zone may deny.
func (h *Handler) decidesAlone(z *Zone) bool {
	return !slices.ContainsFunc(h.Zones, func(o *Zone) bool {
		return o != z && o.c.Percent != enforce.None
	})
}

func checkJitter(jitter float64) error {
	if !(jitter >= 0 && jitter <= 1) { // NaN, too
		return fmt.Errorf("jitter %v: must be from 0 to 1", jitter)
	}
	return nil
}

// Cleanup implements caddy.CleanerUpper. Requests may still be in flight, and be decided
// on after it: stores allow for that.
func (h *Handler) Cleanup() error {
	for _, z := range h.zones {
		z.Release()
	}
	if h.store != nil {
		h.store.Release(h.OnError.Local())
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.requests.Serve(w, r, next)
}

// evaluate implements adminapi.Evaluate.
func evaluate(ctx context.Context, w *dryrun.Trace, handler caddyhttp.MiddlewareHandler, r *http.Request) (status int, passes, known bool, err error) {
	h, known := handler.(*Handler)
	if !known {
		return 0, false, false, nil
	}
	passes, err = h.requests.Inspect(ctx, w, r)
	return h.Status, passes, true, err
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// provision loads the matchers of the zone, and logs what is most likely a mistake in it.
func (z *Zone) provision(ctx caddy.Context, use *zone.Shared) (matchers caddyhttp.MatcherSets, err error) {
	if !use.Warned {
		use.Warned = true
		z.mistakes = placeholders.Find(ctx, z.Name, z.Key, z.names(z.Key), z.isInHandler)
		placeholders.Warn(ctx.Logger(), z.Name, z.Key, z.mistakes)
		z.warn(ctx.Logger())
	}
	z.unseen, z.takenOff = routes.UnseenPaths(ctx, z.Name, z.MatcherSetsRaw)
	for _, path := range z.unseen {
		ctx.Logger().Warn("the zone's path matcher can never match: handle_path or strip_prefix already stripped the prefix; match what is left",
			zap.String("zone", z.Name), zap.String("path", path), zap.String("taken_off", z.takenOff))
	}
	if err := z.Ban.provision(ctx, z.c.Ban); err != nil {
		return nil, fmt.Errorf("zone %s: ban: except: %w", z.Name, err)
	}
	if z.MatcherSetsRaw == nil {
		return nil, nil
	}
	z.matchersJSON = z.MatcherSetsRaw
	loaded, err := ctx.LoadModule(z, "MatcherSetsRaw")
	if err != nil {
		return nil, fmt.Errorf("zone %s: loading matchers: %w", z.Name, err)
	}
	if err := matchers.FromInterface(loaded); err != nil {
		return nil, fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.matchers = matchers
	return matchers, nil
}

// isInHandler reports whether a handler has a zone of the name, if it is one with zones.
func (z *Zone) isInHandler(handler caddyhttp.MiddlewareHandler) (has, known bool) {
	h, known := handler.(*Handler)
	return known && slices.ContainsFunc(h.Zones, func(o *Zone) bool { return o.Name == z.Name }), known
}

// warn logs what is most likely a mistake in the limits, but may be meant: overrides give some keys
// other ones.
func (z *Zone) warn(logger *zap.Logger) {
	if z.Fallback != nil && !slices.ContainsFunc(z.Limits, Limit.dynamic) {
		logger.Warn("fallback is never used: no limit has a placeholder; take fallback out", zap.String("zone", z.Name))
	}
	if z.Ban != nil && z.CountIf == nil && z.c.Key.IsAddress() {
		logger.Warn("a ban of an address is one of all who share it, as in an office or behind a mobile network; count what only an attacker does with count_if, or write a key that tells persons apart",
			zap.String("zone", z.Name))
	}
	if z.Settle != nil { // which reserves the smallest limit at most
		return
	}
	limits := z.c.AllLimits()
	for i, l := range z.Limits {
		if limit := &limits[i]; !limit.DynamicMax() && limit.Known.Limit > 0 && z.c.Cost > limit.Known.Limit {
			logger.Warn("cost is above the limit, so that no request passes; raise the limit, or lower cost",
				zap.String("zone", z.Name), zap.Int64("cost", z.c.Cost), zap.String("limit", strings.TrimPrefix(l.in("limit"), "limit ")))
		}
	}
}
