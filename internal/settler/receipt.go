package settler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/inflight"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
)

// Receipt is that of a charge in a zone. It is settled once, after Admit.
type Receipt struct {
	engine.Receipt
	zone          *Account
	counter       uint64          // see inflight.Receipts
	pendingRefund *inflight.Group // its units, while they are being given back
	decided       time.Duration   // in uptime
}

// Account is what the receipts of a zone have in common.
type Account struct {
	name                          string
	kept, givenBack, excess, lost prometheus.Counter // units
	unknown, failed               prometheus.Counter // requests
	seconds                       prometheus.Observer
	noteCharged                   func(key string, units int64)
}

// NewAccount returns the Zone of a name. noteCharged is told what each request of a key has cost.
func NewAccount(name string, noteCharged func(key string, units int64)) *Account {
	return &Account{
		name:        name,
		kept:        metrics.SettledTotal.WithLabelValues(name, "kept"),
		givenBack:   metrics.SettledTotal.WithLabelValues(name, "given_back"),
		excess:      metrics.SettledTotal.WithLabelValues(name, "excess"),
		lost:        metrics.SettledTotal.WithLabelValues(name, "lost"),
		seconds:     metrics.SettleSeconds.WithLabelValues(name),
		unknown:     metrics.SettleErrorsTotal.WithLabelValues(name, "unknown"),
		failed:      metrics.SettleErrorsTotal.WithLabelValues(name, "failed"),
		noteCharged: noteCharged,
	}
}

// OfTier returns the account of a tier of the zone. The zone alone counts units and times, once for each request.
func (a *Account) OfTier(noteCharged func(key string, units int64)) *Account {
	t, uncounted := *a, prometheus.NewCounter(prometheus.CounterOpts{Name: "uncounted"})
	t.kept, t.givenBack, t.excess, t.lost = uncounted, uncounted, uncounted, uncounted
	t.seconds, t.noteCharged = prometheus.ObserverFunc(func(float64) {}), noteCharged
	return &t
}
