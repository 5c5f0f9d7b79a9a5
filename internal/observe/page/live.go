package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// live is what the page asks for every 2 s.
type live struct {
	Address string  `json:"address"`
	Now     int64   `json:"now"` // in milliseconds, by the clock of this machine
	Metrics metrics `json:"metrics"`
	Status  status  `json:"status"`
}

// metrics are those of this module. Counters are since the process of Caddy began.
type metrics struct {
	At     int64        `json:"at"` // in milliseconds
	Error  string       `json:"error,omitempty"`
	Began  int64        `json:"began,omitempty"` // the process of Caddy, in milliseconds
	Zones  []*zoneView  `json:"zones"`
	Stores []*storeView `json:"stores"`
}

type zoneView struct {
	Name     string             `json:"name"`
	Outcomes map[string]float64 `json:"outcomes"`
	// Shares of the ten keys with the most.
	TopDenied  float64 `json:"top_denied,omitempty"`
	TopCharged float64 `json:"top_charged,omitempty"`
	// Requests that are open; nil without concurrent.
	Held *float64 `json:"held,omitempty"`
}

type storeView struct {
	Name        string   `json:"name"`
	Memory      float64  `json:"memory,omitempty"`
	MemoryMax   float64  `json:"memory_max,omitempty"`
	ClockOffset *float64 `json:"clock_offset,omitempty"`
}

// status is what the admin endpoint says. The answer is left out if the page has it.
type status struct {
	At     int64           `json:"at"` // in milliseconds
	Error  string          `json:"error,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

func (p *Page) serveLive(w http.ResponseWriter, r *http.Request) {
	has, _ := strconv.ParseInt(r.URL.Query().Get("status"), 10, 64) // 0: none
	answer := live{Address: p.address, Now: time.Now().UnixMilli()}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	_ = p.metrics.begin() // beside the status
	text, at, err := p.status.get(ctx)
	answer.Status.At, answer.Status.Error = milliseconds(at), problem(err)
	if answer.Status.At != has && json.Valid(text) {
		answer.Status.Answer = text
	}
	text, at, err = p.metrics.get(ctx)
	var troubles float64
	if err == nil {
		troubles, err = answer.Metrics.read(text)
	}
	if err == nil && p.troubles.haveChanged(troubles) {
		p.status.hurry() // for the next time that the page asks
	}
	answer.Metrics.At, answer.Metrics.Error = milliseconds(at), problem(err)
	writeJSON(w, http.StatusOK, answer)
}

func milliseconds(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The metrics that the page shows.
const (
	decisionsMetric = "caddy_sliding_window_decisions_total"
	topTenMetric    = "caddy_sliding_window_top_ten_ratio"
	heldMetric      = "caddy_sliding_window_concurrent"
	memoryMetric    = "caddy_sliding_window_store_memory_bytes"
	memoryMaxMetric = "caddy_sliding_window_store_memory_max_bytes"
	clockMetric     = "caddy_sliding_window_store_clock_offset_seconds"
	beganMetric     = "process_start_time_seconds"
)

// The metrics that show troubles, of which the status has more. Each is 1 while there is one.
const (
	awayMetric  = "caddy_sliding_window_breaker_open"
	alertMetric = "caddy_sliding_window_alert"
)

// read takes what the page shows from metrics in Prometheus's text format. It returns how many troubles there are.
func (m *metrics) read(text []byte) (troubles float64, err error) {
	families := make(map[string]*dto.MetricFamily)
	decoder := expfmt.NewDecoder(bytes.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain).WithEscapingScheme(model.NoEscaping))
	for {
		family := new(dto.MetricFamily)
		err := decoder.Decode(family)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		families[family.GetName()] = family
	}
	for _, name := range []string{awayMetric, alertMetric} {
		each(families, name, func(_ func(string) string, value float64) { troubles += value })
	}
	each(families, beganMetric, func(_ func(string) string, value float64) { m.Began = int64(1000 * value) })
	zones, stores := make(map[string]*zoneView), make(map[string]*storeView)
	each(families, decisionsMetric, func(label func(string) string, value float64) {
		zoneOf(zones, label("zone")).Outcomes[label("outcome")] = value
	})
	each(families, topTenMetric, func(label func(string) string, value float64) {
		if z := zoneOf(zones, label("zone")); label("by") == "denied" {
			z.TopDenied = value
		} else {
			z.TopCharged = value
		}
	})
	each(families, heldMetric, func(label func(string) string, value float64) { zoneOf(zones, label("zone")).Held = &value })
	each(families, memoryMetric, func(label func(string) string, value float64) { storeOf(stores, label("store")).Memory = value })
	each(families, memoryMaxMetric, func(label func(string) string, value float64) { storeOf(stores, label("store")).MemoryMax = value })
	each(families, clockMetric, func(label func(string) string, value float64) { storeOf(stores, label("store")).ClockOffset = &value })
	m.Zones, m.Stores = []*zoneView{}, []*storeView{}
	for _, z := range zones {
		m.Zones = append(m.Zones, z)
	}
	for _, s := range stores {
		m.Stores = append(m.Stores, s)
	}
	slices.SortFunc(m.Zones, func(a, b *zoneView) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Stores, func(a, b *storeView) int { return cmp.Compare(a.Name, b.Name) })
	return troubles, nil
}

// troubles is how many troubles the metrics last showed. It is safe for concurrent use.
type troubles struct {
	mu    sync.Mutex // guards count
	count float64
}

// haveChanged takes a new count, and reports whether it differs from the last one.
func (t *troubles) haveChanged(count float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := count != t.count
	t.count = count
	return changed
}

func zoneOf(zones map[string]*zoneView, name string) *zoneView {
	if zones[name] == nil {
		zones[name] = &zoneView{Name: name, Outcomes: make(map[string]float64)}
	}
	return zones[name]
}

func storeOf(stores map[string]*storeView, name string) *storeView {
	if stores[name] == nil {
		stores[name] = &storeView{Name: name}
	}
	return stores[name]
}

// each calls do for every counter or gauge of a name.
func each(families map[string]*dto.MetricFamily, name string, do func(label func(string) string, value float64)) {
	for _, m := range families[name].GetMetric() {
		do(func(label string) string {
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					return l.GetValue()
				}
			}
			return ""
		}, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue())
	}
}
