package suggest

import (
	"runtime"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/series"
)

// Options of a Collector.
type Options struct {
	Windows []time.Duration // in ascending order
	// WholeSeconds says that the log's times have no fractions.
	WholeSeconds bool
	Memory       int64 // bytes for keys and times
	Top          int   // how many keys Result.Top has
}

// Collector collects the requests of a log.
type Collector struct {
	options Options
	set     *series.Set
	from    int64
	to      int64
	minutes minutes // of all requests
}

// New returns an empty Collector.
func New(o Options) *Collector {
	windows := o.Windows
	if o.WholeSeconds {
		windows = nil
		for _, w := range o.Windows {
			windows = append(windows, w-time.Second+time.Millisecond, w+time.Second)
		}
	}
	return &Collector{options: o, set: series.New(windows, o.Memory)}
}

// Add counts a request of a key, at a time in nanoseconds since 1970. Times must not step back. Its error is
// series.ErrMemory.
func (c *Collector) Add(key string, at int64) error {
	if c.set.Requests() == 0 {
		c.from = at
	}
	c.to = max(c.to, at)
	c.minutes.add(at / int64(time.Minute))
	return c.set.Add(key, at)
}

// Result is what a log says of limits.
type Result struct {
	Keys     int       `json:"keys"`
	Requests int64     `json:"requests"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Windows  []Window  `json:"windows"`
	// Pair is the suggestion: a limit for bursts, and one for what goes on for long. It is shorter if the log is too
	// short for two of the windows.
	Pair   []Limit `json:"pair"`
	Denied Denied  `json:"denied"` // by the pair
	// Spans are the log in parts of Step seconds, with what the pair would have denied in each.
	Spans  []Span  `json:"spans"`
	Step   int64   `json:"span_seconds"`
	Top    []Top   `json:"top"` // the keys with the most denied requests
	Folded *Folded `json:"folded,omitempty"`
}

// Folded says what the bound on memory cost. Peaks are exact all the same.
type Folded struct {
	Keys     int   `json:"keys"`
	Requests int64 `json:"requests"`
	// Exact are for each window the limits from which on all figures are exact. Below, denied requests lie between
	// requests_denied and requests_denied plus uncertain.
	Exact []int `json:"exact_from"`
}

// Limit is a limit of a window.
type Limit struct {
	Limit  int           `json:"limit"`
	Window time.Duration `json:"-"`
	Text   string        `json:"window"`
}

// Window is what a log says of a window.
type Window struct {
	Window time.Duration `json:"-"`
	Text   string        `json:"window"`
	// Longer says that the window is longer than the log, so that peaks in it are too low.
	Longer bool `json:"longer_than_log,omitempty"`
	// ByKey has percentiles of the peaks of keys, ByRequest of the peaks of the keys that requests have.
	ByKey     Percentiles `json:"peaks_by_key"`
	ByRequest Percentiles `json:"peaks_by_request"`
	// AtLeast has ByKey at its lower bound, if times are in whole seconds; ByKey and ByRequest are at the upper one then.
	AtLeast *Percentiles `json:"peaks_by_key_at_least,omitempty"`
	Peaks   []Count      `json:"peaks"` // of keys, in ascending order; a histogram
	Curve   []Point      `json:"curve"`
	Gap     *Gap         `json:"gap,omitempty"`
	Limit   int          `json:"limit"` // what this window alone suggests
}

// Percentiles of peaks.
type Percentiles struct {
	P50  int `json:"p50"`
	P90  int `json:"p90"`
	P99  int `json:"p99"`
	P999 int `json:"p99.9"`
	Max  int `json:"max"`
}

// Count is how many keys have a peak, and how many requests these keys have.
type Count struct {
	Peak     int   `json:"peak"`
	Keys     int   `json:"keys"`
	Requests int64 `json:"requests"`
}

// Point is what a limit would have denied.
type Point struct {
	Limit int `json:"limit"`
	Denied
}

// Denied are requests and keys that limits would have denied.
type Denied struct {
	Requests  int64 `json:"requests_denied"`
	Keys      int   `json:"keys_denied"`
	Uncertain int64 `json:"uncertain,omitempty"`
}

// Gap lies between the keys that go on and few that are far above them.
type Gap struct {
	Below int `json:"below"` // the highest peak below it
	Above int `json:"above"` // the lowest peak above it
	Keys  int `json:"keys"`  // above it
}

// Top is a key of which the pair would have denied requests.
type Top struct {
	Key      string `json:"key"`
	Requests int    `json:"requests"`
	Denied   int64  `json:"denied"`
	Peaks    []int  `json:"peaks"`
}

// Result returns what has been collected says.
func (c *Collector) Result() Result {
	r := Result{Keys: c.set.Keys(), Requests: c.set.Requests(), From: time.Unix(0, c.from).UTC(), To: time.Unix(0, c.to).UTC()}
	if keys, requests, peaks := c.set.Folded(); keys > 0 {
		r.Folded = &Folded{Keys: keys, Requests: requests, Exact: c.upper(peaks)}
	}
	c.peaks(&r)
	c.gaps(&r)
	c.pair(&r)
	c.curves(&r)
	return r
}

// upper returns the upper bounds of peaks by window.
func (c *Collector) upper(peaks []int) []int {
	if !c.options.WholeSeconds {
		return peaks
	}
	var up []int
	for i := 1; i < len(peaks); i += 2 {
		up = append(up, peaks[i])
	}
	return up
}

// each calls one goroutine a core, each with part of the keys, and then merge for one after the other. part returns what
// a goroutine does with a key, and what merges it.
func (c *Collector) each(part func() (one func(*series.Key), merge func())) {
	n := max(1, min(runtime.GOMAXPROCS(0), c.set.Keys()/1000))
	var merges []func()
	var wait sync.WaitGroup
	for first := range n {
		one, merge := part()
		merges = append(merges, merge)
		wait.Go(func() {
			reader := c.set.Reader()
			for i := first; i < c.set.Keys(); i += n {
				one(reader.Key(i))
			}
		})
	}
	wait.Wait()
	for _, merge := range merges {
		merge()
	}
}
