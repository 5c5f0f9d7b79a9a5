package storestate

import (
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/stores"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Outages writes a line for each change of the state of a store, or of a part of it: a node
// of a Cluster. The name of the store as a whole is empty.
type Outages struct {
	store string
	of    window.Store
	mu    sync.Mutex        // guards parts
	parts map[string]outage // by part that is away
	now   func() time.Time
}

// outage is of a store or a part of it.
type outage struct {
	guards int // that find it away
	Since  time.Time
	Cause  error // that was told last
	told   time.Time
	kind   string // of the cause that was told last; see causeOf
	// The kind of the last ping's cause.
	pinged string
}

// NewOutages returns one of a store.
func NewOutages(name string, store window.Store) *Outages {
	l := &Outages{store: name, of: store, parts: make(map[string]outage), now: time.Now}
	l.show("", 0)
	return l
}

// shown holds the outages of parts that the metric shows.
var shown struct {
	sync.Mutex                           // guards away; held for a few instructions
	away       map[string]map[string]int // guards that find a part away, by store and by part
}

// show adds to the guards of this name that find a part away; two stores may differ in no more
// than a password. A part is a node of a Cluster that was away once. A new part removes the parts that have left the Cluster.
func (l *Outages) show(part string, n int) {
	shown.Lock()
	defer shown.Unlock()
	own := shown.away[l.store]
	if own == nil {
		own = make(map[string]int)
		if shown.away == nil {
			shown.away = make(map[string]map[string]int)
		}
		shown.away[l.store] = own
	}
	if parted, ok := l.of.(engine.Parted); ok {
		for other, guards := range own {
			if guards == 0 && other != part && !parted.HasPart(other) {
				delete(own, other)
				metrics.StoreOpen.DeleteLabelValues(l.store, label(other))
			}
		}
	}
	own[part] += n
	metrics.StoreOpen.WithLabelValues(l.store, label(part)).Set(float64(own[part]))
}

// label returns the name of a part as a label of a metric.
func label(part string) string { return strings.ToValidUTF8(part, "\uFFFD") }

// End forgets outages whose end is not seen. There are no more changes.
func (l *Outages) End() {
	for part := range l.Away() {
		l.show(part, -1)
	}
}

// Away returns the outages that last, by part.
func (l *Outages) Away() map[string]outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.parts)
}

// note notes that a guard finds a part away since now, or back. It returns when the part went, and whether this guard is the
// first, or the last, to find it so.
func (l *Outages) note(part string, open bool, cause error) (since time.Time, isChange bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.parts[part]
	if open {
		if o.guards == 0 {
			now := l.now()
			o = outage{Since: now, Cause: cause, told: now, kind: causeOf(cause)}
		}
		o.guards++
		l.parts[part] = o
		return o.Since, o.guards == 1
	}
	o.guards--
	if l.parts[part] = o; o.guards < 1 {
		delete(l.parts, part)
	}
	return o.Since, o.guards < 1
}

// logger returns one that adds what a cause hints at.
func (l *Outages) logger(cause error) *zap.Logger {
	logger := Logger(l.store)
	if hint := stores.Hint(l.of, cause); hint != "" {
		logger = logger.With(zap.String("hint", hint))
	}
	return logger
}

// Changed tells that a part is away, or back. Several guards of the store may find so; the part is away as long as one does.
func (l *Outages) Changed(part string, open bool, cause error) {
	since, isChange := l.note(part, open, cause)
	if !isChange {
		return
	}
	l.emit(part, open, cause, since)
	if open {
		logger := l.logger(cause)
		l.show(part, 1)
		if part == "" {
			logger.Warn("store is unavailable; on_error decides until it is back", zap.Error(cause))
		} else {
			logger.Warn("node of the store is unavailable; on_error decides on requests that need it until it is back",
				zap.String("node", part), zap.Error(cause))
		}
		return
	}
	l.show(part, -1)
	logger := Logger(l.store)
	away := zap.Duration("away", l.now().Sub(since))
	if part == "" {
		logger.Warn("store is back", away)
	} else {
		logger.Warn("node of the store is back", zap.String("node", part), away)
	}
}

// emit sends the event that a part is away since a time, or back. The node is empty for the
// store as a whole.
func (l *Outages) emit(part string, open bool, cause error, since time.Time) {
	data := map[string]any{"store": l.store, "node": part, "since": since.UTC().Format(time.RFC3339)}
	if open {
		data["cause"] = cause.Error()
		events.Emit(events.Away, data)
		return
	}
	data["away"] = l.now().Sub(since).Seconds()
	events.Emit(events.Back, data)
}

const (
	causeInterval = 10 * time.Second // between two lines on the cause of one outage, at least
	outageRepeat  = time.Hour        // after which an outage is told again
)

// Pinged is called for each ping that fails while a part is away. It writes a line when the cause
// is another one twice in a row, and every hour.
func (l *Outages) Pinged(part string, cause error) {
	away, due := l.noteCause(part, cause)
	if !due {
		return
	}
	logger := l.logger(cause).With(zap.Duration("away", away), zap.Error(cause))
	if part != "" {
		logger = logger.With(zap.String("node", part))
	}
	logger.Warn("store is still unavailable")
}

// noteCause notes the cause of a ping. It returns for how long the part is away, and whether a
// line is due.
func (l *Outages) noteCause(part string, cause error) (away time.Duration, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, ok := l.parts[part]
	if !ok {
		return 0, false
	}
	now, kind := l.now(), causeOf(cause)
	silent := now.Sub(o.told)
	changed := kind != o.kind && kind == o.pinged
	due = changed && silent >= causeInterval || silent >= outageRepeat
	o.pinged = kind
	if due {
		o.kind, o.told, o.Cause = kind, now, cause
	}
	l.parts[part] = o
	return now.Sub(o.Since), due
}

// varying is what differs each time in errors of one cause: the two ends of a connection, of which the near one is another each
// time, and which connection had no answer, that only some errors tell.
var varying = regexp.MustCompile(`: (read|write|dial) \S+ \S+: i/o timeout|\S+->\S+`)

// causeOf returns the text of an error without what differs each time.
func causeOf(err error) string { return varying.ReplaceAllString(err.Error(), "") }
