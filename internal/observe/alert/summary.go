package alert

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
)

// A zone that begins to deny has a line after firstSummary at most, and then one for each nextSummary with denials. After
// quietSummaries without any, a last line says that it has stopped. So however rarely it denies, a zone has one line for each
// nextSummary on average.
const (
	firstSummary   = 10 * time.Second
	nextSummary    = time.Minute
	quietSummaries = 2
)

// summary is what is logged of a zone's denials.
type summary struct {
	since time.Time // what has come since is in no line
	told  Counted   // at that time
	// While the zone denies: since when, what was counted before, and the periods without denials at the end.
	begun  time.Time // zero: it denies nothing
	before Counted
	quiet  int
}

// summarize writes a line on what was denied, if one is due. t.mu must be held.
func (t *Counters) summarize(now time.Time, c Counted) {
	s := &t.summary
	length := nextSummary
	if s.begun.IsZero() {
		length = firstSummary
	}
	if now.Sub(s.since) < length {
		return
	}
	last := *s
	s.since, s.told = now, c
	logger := storestate.Logger(t.zone.Store.Name).With(zap.String("zone", t.zone.Zone))
	switch {
	case c.refused() > last.told.refused():
		if s.quiet = 0; s.begun.IsZero() {
			s.begun, s.before = last.since, last.told
		}
		logger.Info("zone denied requests", t.fieldsOf(now.Sub(last.since), c, last.told)...)
	case s.begun.IsZero():
	default:
		if s.quiet++; s.quiet < quietSummaries {
			return
		}
		logger.Info("zone has stopped denying requests", zap.Duration("lasted", (now.Sub(s.begun)-quietSummaries*nextSummary).Round(time.Second)),
			zap.Int64("denied", c.Denied-s.before.Denied), zap.Int64("failed_closed", c.FailedClosed-s.before.FailedClosed))
		s.begun = time.Time{}
	}
}

// fieldsOf returns what a line says of a period.
func (t *Counters) fieldsOf(period time.Duration, c, last Counted) []zap.Field {
	fields := []zap.Field{
		zap.Duration("period", period.Round(time.Second)),
		zap.Int64("allowed", c.Allowed-last.Allowed), zap.Int64("denied", c.Denied-last.Denied),
		zap.Int64("failed_open", c.FailedOpen-last.FailedOpen), zap.Int64("failed_closed", c.FailedClosed-last.FailedClosed),
		zap.Int64("keys", t.keys.take()),
	}
	if most := t.frequent.Take(3); t.logs.Load() && len(most) > 0 {
		shown := make([]frequentKey, len(most))
		for i, k := range most {
			shown[i] = frequentKey{strings.ToValidUTF8(k.Key, ""), k.Certain()}
		}
		fields = append(fields, zap.Any("most", shown))
	}
	return fields
}

// frequentKey is a key in the log, and how many times it came at least.
type frequentKey struct {
	Key   string `json:"key"`
	Times int64  `json:"times"`
}
