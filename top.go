package slidingwindow

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/topkeys"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// topTalkers are the keys of a zone that are denied most and charged most. A zone without the option
// has none: nil.
type topTalkers struct {
	*topPair
	label topkeys.Label // nil: keys are kept and shown as they are
}

// topPair outlives reloads, and is the same for all handlers with the zone.
type topPair struct {
	denied  *topkeys.Keys // in requests
	charged *topkeys.Keys // in units
}

// topID tells pairs apart. A pair with hashes holds no keys, also after hash_keys was added.
type topID struct {
	zoneID
	hashed bool
}

var topPairs = caddy.NewUsagePool()

// Destruct implements caddy.Destructor.
func (*topPair) Destruct() error { return nil }

// acquireTop returns the top talkers of a zone, if it has the option. Cleanup releases them.
func (h *Handler) acquireTop(z *Zone, store window.Store) *topTalkers {
	if !z.TopTalkers {
		return nil
	}
	id, t := topID{zoneID: zoneID{store.String(), z.Name}}, new(topTalkers)
	if hasher, ok := store.(engine.KeyHasher); ok && hasher.HashesKeys() {
		id.hashed, t.label = true, hasher.AppendKeyHash
	}
	value, _, _ := topPairs.LoadOrNew(id, func() (caddy.Destructor, error) {
		return &topPair{topkeys.New(uptime.Now()), topkeys.New(uptime.Now())}, nil
	})
	t.topPair = value.(*topPair)
	h.tops = append(h.tops, id)
	return t
}

func (h *Handler) releaseTops() {
	for _, id := range h.tops {
		_, _ = topPairs.Delete(id) // Destruct returns no error
	}
}

// by returns one of the pair; nil for a word that names none.
func (p *topPair) by(word string) *topkeys.Keys {
	switch word {
	case "denied":
		return p.denied
	case "charged":
		return p.charged
	}
	return nil
}

// noteDenied counts a request that the zone denies, or would deny.
func (t *topTalkers) noteDenied(key string) {
	if t != nil {
		t.denied.Add(uptime.Now(), key, 1, t.label)
	}
}

// noteCharged counts what a request has cost.
func (t *topTalkers) noteCharged(key string, units int64) {
	if t != nil {
		t.charged.Add(uptime.Now(), key, units, t.label)
	}
}

// noteTop counts the request for the top talkers of its zones. Zones that settle count what a request
// has cost when that is known.
func (req *request) noteTop() {
	if req.keyless != nil {
		key := "" // or that of an override
		if req.denyingRule() != nil {
			key = req.overridden.key
		}
		req.keyless.top.noteDenied(key)
		return
	}
	for i, z := range req.zones {
		switch {
		case z.top == nil:
		case !req.allowed && !window.Allowed(req.decisionsOf(i)):
			z.top.noteDenied(req.charges[i].Key)
		case req.allowed && !z.settles():
			z.top.noteCharged(req.charges[i].Key, req.charges[i].Cost)
		}
	}
}

// sinceTop returns the time of day for one of uptime.
func sinceTop(since time.Duration) time.Time { return time.Now().Add(since - uptime.Now()) }

func newTopTenRatio() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "top_ten_ratio",
		Help: "Share that the ten keys with the most have at least, in zones with top_talkers: of the requests that were denied, or of the units that were charged, in the last one to two minutes.",
	}, []string{"zone", "by"})
}

// topCollector tells what newTopTenRatio describes, as of when it is asked. Of a zone on several stores, it is that of the store with the most.
type topCollector struct{}

// Describe implements prometheus.Collector.
func (topCollector) Describe(ch chan<- *prometheus.Desc) { newTopTenRatio().Describe(ch) }

// Collect implements prometheus.Collector.
func (topCollector) Collect(ch chan<- prometheus.Metric) {
	pairs := make(map[topID]*topPair)
	topPairs.Range(func(key, value any) bool {
		pairs[key.(topID)] = value.(*topPair)
		return true
	})
	type label struct{ zone, by string }
	most := make(map[label]topkeys.Top)
	for id, pair := range pairs {
		for _, by := range []string{"denied", "charged"} {
			top := pair.by(by).Top(uptime.Now(), 10)
			if other, ok := most[label{id.zone, by}]; !ok || top.Total > other.Total {
				most[label{id.zone, by}] = top
			}
		}
	}
	ratio := newTopTenRatio()
	for l, top := range most {
		ratio.WithLabelValues(l.zone, l.by).Set(top.TopTenRatio())
	}
	ratio.Collect(ch)
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
	found := t.by(query.By).Top(uptime.Now(), *query.Count)
	answer := &control.Top{
		Zone: query.Zone, Store: zones[0].id().store, By: query.By, Since: sinceTop(found.Since).UTC().Format(time.RFC3339),
		Total: found.Total, Hashed: t.label != nil, Keys: []control.TopKey{},
	}
	for _, key := range found.Keys {
		answer.Keys = append(answer.Keys, control.TopKey{Key: key.Key, Count: key.Count, Error: key.Error, Cut: key.Cut})
	}
	return http.StatusOK, answer, nil
}
