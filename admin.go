package slidingwindow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI is what an operator asks Caddy's admin endpoint about the zones that run, below
// /sliding_window/. It keeps nothing: Caddy makes it before the zones, and for configurations
// that fail to load.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.sliding_window", New: func() caddy.Module { return new(adminAPI) }}
}

// Routes implements caddy.AdminRouter.
func (adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: control.Base, Handler: caddy.AdminHandlerFunc(serveAdmin)}}
}

// endpoint is a path of the API. Caddy logs the URI of each request, but no body: whatever holds a
// key is a POST.
type endpoint struct {
	method string
	serve  func(r *http.Request, body []byte) (status int, answer any, err error)
}

var endpoints = map[string]endpoint{
	"zones":   {http.MethodGet, func(*http.Request, []byte) (int, any, error) { return http.StatusOK, listZones(), nil }},
	"status":  {http.MethodGet, func(r *http.Request, _ []byte) (int, any, error) { return http.StatusOK, statusFor(r), nil }},
	"inspect": {http.MethodPost, inspect},
	"reset":   {http.MethodPost, reset},
	"enforce": {http.MethodPost, setEnforcement},
	"top":     {http.MethodPost, top},

	"overrides/list":    {http.MethodPost, listOverrides},
	"overrides/set":     {http.MethodPost, setOverrides},
	"overrides/delete":  {http.MethodPost, deleteOverrides},
	"overrides/replace": {http.MethodPost, replaceOverrides},
}

func serveAdmin(w http.ResponseWriter, r *http.Request) error {
	e, ok := endpoints[strings.TrimPrefix(r.URL.Path, control.Base)]
	if !ok {
		return apiError(http.StatusNotFound, errors.New("no such path; use zones, status, inspect, reset, enforce, top or overrides/list below "+control.Base))
	}
	if r.Method != e.method {
		w.Header().Set("Allow", e.method)
		return apiError(http.StatusMethodNotAllowed, errors.New("method not allowed; use "+e.method))
	}
	var body []byte
	if e.method == http.MethodPost {
		var err error
		if body, err = readBody(w, r); err != nil {
			return err
		}
	}
	status, answer, err := e.serve(r, body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	return nil
}

func apiError(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// readBody returns the body of a POST. Web pages cannot send its content type to another origin.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, apiError(http.StatusUnsupportedMediaType, errors.New("Content-Type: must be application/json"))
	}
	most := int64(control.MaxBody)
	if strings.HasPrefix(r.URL.Path, control.Base+"overrides/") {
		most = control.MaxOverrides
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, apiError(http.StatusRequestEntityTooLarge, fmt.Errorf("body: longer than %d bytes", most))
	case err != nil:
		return nil, apiError(http.StatusBadRequest, errors.New("body: could not be read to its end"))
	}
	return body, nil
}

func listZones() control.Zones {
	answer := control.Zones{Zones: []control.Zone{}}
	for _, all := range running.list() {
		z := &all[0].zone
		one := control.Zone{
			Name: z.Name, Store: all[0].id().store, Key: z.Key, Algorithm: z.algorithmName(), OnError: all[0].onError,
			Outcomes: z.counters.Outcomes(), TopTalkers: z.TopTalkers,
		}
		one.Enforce, one.EnforceUntil = z.enforcedNow()
		for _, l := range z.Limits {
			p := l.plain()
			one.Limits = append(one.Limits, control.Limit{Max: string(p.Max), Window: string(p.Window)})
		}
		answer.Zones = append(answer.Zones, one)
	}
	return answer
}

// algorithmName returns the algorithm in the words of the configuration.
func (z *Zone) algorithmName() string {
	if z.Algorithm == nil {
		return window.Zset{}.Name()
	}
	return cmp.Or(z.Algorithm.Name, window.Zset{}.Name())
}

// statusFor returns the status, with the zones if the query of the request asks for them: then one
// request, which is one line of Caddy's log, tells all.
func statusFor(r *http.Request) control.Status {
	answer := status()
	if r.URL.Query().Has("zones") {
		answer.Zones = listZones().Zones
	}
	return answer
}

func status() control.Status {
	answer := control.Status{Version: control.Version(), Stores: []control.Store{}, Alerts: listAlerts()}
	for _, s := range running.stores() {
		answer.Stores = append(answer.Stores, stateOf(s))
	}
	answer.Loads = zoneLoads()
	return answer
}

// stateOf returns the state of a store.
func stateOf(s *openstore.Store) control.Store {
	state := s.State()
	state.Overrides = overrideState(s)
	return state
}

// selected is a counter that an operator has named.
type selected struct {
	zones  []*runningZone // of all handlers that have it
	charge window.Charge
	rule   *overrides.Rule // of the charge; nil without one
}

// selectCounter returns the counter that a selector names. Its errors hold no value of it.
func selectCounter(s control.Selector) (*selected, error) {
	zones, err := selectZone(s)
	if err != nil {
		return nil, err
	}
	z := &zones[0].zone
	values := s.Values
	if s.Key != nil {
		values = []string{*s.Key}
		if z.key.Placeholders > 1 {
			return nil, apiError(http.StatusBadRequest, fmt.Errorf("key: the zone's key has %d placeholders; send values, in order", z.key.Placeholders))
		}
	}
	key, empty, err := z.key.KeyOf(values)
	if err == nil && empty && z.EmptyKey != "" && z.EmptyKey != emptyShared {
		err = fmt.Errorf("key: empty, and with empty_key %s such requests are not counted", z.EmptyKey)
	}
	if err != nil {
		return nil, apiError(http.StatusBadRequest, err)
	}
	c, rule := z.chargeUnder(key, caddy.NewReplacer())
	return &selected{zones, c, rule}, nil
}

// selectZone returns the zone that a selector names, of all handlers that have it.
func selectZone(s control.Selector) ([]*runningZone, error) {
	all := running.find(s.Zone)
	if len(all) == 0 {
		return nil, apiError(http.StatusNotFound, errors.New("zone: no zone of this name runs; GET "+control.Base+"zones lists the zones"))
	}
	if s.Store == "" && len(all) == 1 {
		return all[0], nil
	}
	var names []string
	for _, zones := range all {
		if zones[0].id().store == s.Store {
			return zones, nil
		}
		names = append(names, strconv.Quote(zones[0].id().store))
	}
	if s.Store == "" {
		return nil, apiError(http.StatusBadRequest, fmt.Errorf("store: required, as several stores have this zone; use one of %s", joinWords(names)))
	}
	return nil, apiError(http.StatusNotFound, fmt.Errorf("store: has no zone of this name; use one of %s", joinWords(names)))
}

// top says which keys of a zone are denied or charged most.
func top(_ *http.Request, body []byte) (int, any, error) {
	query, err := control.DecodeTop(body)
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	zones, err := selectZone(control.Selector{Zone: query.Zone, Store: query.Store})
	if err != nil {
		return 0, nil, err
	}
	t := zones[0].zone.top
	if t == nil {
		return 0, nil, apiError(http.StatusConflict, errors.New("zone: keeps no top talkers; write top_talkers in it"))
	}
	return http.StatusOK, t.Top(query.By, *query.Count), nil
}

// inspect says what the next request on a counter meets, or a request that is like an example.
func inspect(r *http.Request, body []byte) (int, any, error) {
	selector, err := control.DecodeSelector(body)
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	if selector.Request != nil {
		return inspectRequest(r.Context(), selector.Request)
	}
	s, err := selectCounter(selector)
	if err != nil {
		return 0, nil, err
	}
	z, c := s.zones[0], &s.charge
	if s.rule.Decides() {
		return http.StatusOK, z.decidedBy(c, s.rule), nil
	}
	peek := z.store.Peek
	if !enforce.IsEnforced(c.Zone, c.Key, z.zone.enforced()) {
		peek = z.store.PeekShadow
	}
	ds, by, cause, err := peek(r.Context(), []window.Charge{*c}, z.onError == onErrorLocal, z.share)
	if err != nil {
		return 0, nil, z.unavailable(err)
	}
	return http.StatusOK, z.under(z.inspection(c, ds, by, cause), s.rule), nil
}

// inspection returns what is said of a charge with these decisions. The cause is why the store did
// not decide.
func (z *runningZone) inspection(c *window.Charge, ds []window.Decision, by engine.Source, cause error) *control.Inspection {
	store := z.store.Name()
	answer := &control.Inspection{
		Zone: c.Zone, Key: c.Key, Algorithm: z.zone.algorithmName(), DecidedBy: string(by), Cost: c.Cost, WouldPass: window.Allowed(ds),
		Store: control.InspectedStore{Name: store, State: control.StateOK},
	}
	if by == engine.SourceStore {
		answer.DecidedBy, _, _ = strings.Cut(store, " ")
	}
	if n, ok := z.store.Raw.(engine.CounterNamer); ok {
		answer.RedisKey = n.CounterName(*c)
	}
	if cause != nil {
		state := stateOf(z.store)
		answer.Store = control.InspectedStore{Name: store, State: control.StateAway, Since: state.Since, Cause: cmp.Or(state.Cause, cause.Error())}
	}
	answer.Enforce, _ = z.zone.enforcedNow()
	for i := range ds {
		answer.Limits = append(answer.Limits, z.zone.limitState(c.Policies[i], &ds[i]))
	}
	return answer
}

func (z *Zone) limitState(p window.Policy, d *window.Decision) control.LimitState {
	state := control.LimitState{
		Max: p.Limit, Window: duration.Short(p.Window), Used: max(0, d.Limit-d.Remaining), Remaining: d.Remaining,
		ResetAfter: d.ResetAfter.Seconds(), Source: z.sourceOf(p),
	}
	if d.RetryAfter != window.Never {
		wait := d.RetryAfter.Seconds()
		state.RetryAfter = &wait
	}
	return state
}

// unavailable returns the error of a store that cannot say.
func (z *runningZone) unavailable(err error) error {
	if !errors.Is(err, window.ErrUnavailable) {
		return apiError(http.StatusInternalServerError, err)
	}
	if z.onError == onErrorLocal {
		return apiError(http.StatusServiceUnavailable, err)
	}
	return apiError(http.StatusServiceUnavailable, fmt.Errorf("%w; on_error %s decides until it is back", err, z.onError))
}

// Notes of a reset.
const (
	noteAway   = "the store is away: this Caddy has forgotten the counter, and tells the store when it is back; other Caddys may book what they let pass"
	noteShared = "other Caddys follow within 1 s"
	noteLease  = "other Caddys follow within 1 s, but may still let pass what they hold in leases"
)

// reset forgets the history of a counter.
func reset(r *http.Request, body []byte) (int, any, error) {
	selector, err := control.DecodeSelector(body)
	if err == nil && selector.Request != nil {
		err = errors.New("request: only inspect takes one; send zone, and key or values")
	}
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	s, err := selectCounter(selector)
	if err != nil {
		return 0, nil, err
	}
	z, c := s.zones[0], &s.charge
	answer := &control.Reset{Zone: c.Zone, Key: c.Key, Store: z.store.Name(), Done: true}
	var told []*openstore.Store
	for _, other := range s.zones { // stores of one name may differ in options, and remember apart
		if slices.Contains(told, other.store) {
			continue
		}
		told = append(told, other.store)
		done, err := other.store.Reset(r.Context(), *c)
		if err != nil {
			return 0, nil, other.unavailable(err)
		}
		answer.Done = answer.Done && done
	}
	switch {
	case !answer.Done:
		answer.Note = noteAway
		return http.StatusAccepted, answer, nil
	case !z.store.IsRemote():
	case c.Lease.Units > 0:
		answer.Note = noteLease
	default:
		answer.Note = noteShared
	}
	return http.StatusOK, answer, nil
}

// Interface guards.
var _ caddy.AdminRouter = adminAPI{}
