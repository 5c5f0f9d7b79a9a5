package replay

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// Options of a replay.
type Options struct {
	Logs      []string // files; "-" is Stdin
	Stdin     io.Reader
	Config    Config
	Against   Config // without a file: none
	Server    string // that gets all requests; empty: the log tells
	Zone      string // that is reported; empty: all
	Exclude   string // a file of keys that are left out, one a line
	Overrides string // a file of overrides; empty: without any
	Keys      bool   // whether the report has keys
	Top       int    // keys of a zone in the report
	Reorder   time.Duration
	Memory    int64 // bytes that keys take at most
	// Progress is called now and then, if it is set.
	Progress func(accesslog.Progress)
}

// Run replays a log.
func Run(o Options) (*Report, error) {
	defer holdHeap(o.Memory)()
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.read(); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// run is a replay under way.
type run struct {
	Options
	engines []*engine // of the configuration, and of the other one
	holds   bool      // one of them does
	tallies []*tally
	changes *changes // nil: there is no other configuration
	log     accesslog.Report
	from    int64 // Unix nanoseconds
	to      int64
	late    int64
	were429 int64
}

// newRun loads the configurations. Close it.
func newRun(o Options) (*run, error) {
	r := &run{Options: o}
	if err := r.load(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// load loads the configurations.
func (r *run) load() error {
	o := &r.Options
	excluded, err := readKeys(o.Exclude)
	if err != nil {
		return err
	}
	records, err := readOverrides(o.Overrides)
	if err != nil {
		return err
	}
	maxKeys := keysWithin(o.Memory)
	configs := []Config{o.Config}
	if o.Against.File != "" {
		configs = append(configs, o.Against)
		maxKeys /= 2
		r.changes = newChanges(excluded, o.Zone)
	}
	for i, c := range configs {
		p, err := loadPlan(c, setting{fmt.Sprintf("replay %d", i+1), maxKeys, records})
		if err != nil {
			return err
		}
		r.holds = r.holds || p.holds
		t := newTally(p, maxKeys, excluded)
		e := &engine{plan: p, server: o.Server, routed: make(map[route]*server)}
		e.decided = func(l *accesslog.Line, outcome request.Outcome) error {
			t.note(l, outcome)
			r.changes.note(i, outcome)
			return nil
		}
		r.engines, r.tallies = append(r.engines, e), append(r.tallies, t)
	}
	if o.Zone != "" && r.tallies[0].byName[o.Zone] == nil {
		return fmt.Errorf("--zone %s: the configuration has no zone of this name", o.Zone)
	}
	return nil
}

// close ends what runs.
func (r *run) close() {
	for _, e := range r.engines {
		e.close()
	}
}

// read takes the lines of the log through the engines.
func (r *run) read() (err error) {
	line := new(accesslog.Line)
	r.log, r.late, err = readInOrder(
		reading{logs: r.Logs, stdin: r.Stdin, prepare: prepare, reorder: r.Reorder, queued: bytesOfLine, memory: r.Memory, progress: r.Progress},
		func(l *accesslog.Line) accesslog.Line { return *l },
		func(at int64, l accesslog.Line) error {
			if r.holds {
				line = new(accesslog.Line) // an answer that is held keeps it
			}
			*line = l
			line.Start = at
			return r.take(line)
		})
	if err != nil {
		return err
	}
	for _, e := range r.engines {
		if err := e.end(); err != nil {
			return err
		}
	}
	return nil
}

// bytesOfLine is about what a line and its request take.
const bytesOfLine = 4096

// take takes a line through the engines.
func (r *run) take(l *accesslog.Line) error {
	if r.from == 0 {
		r.from = l.Start
	}
	r.to = l.Start
	if l.Status == http.StatusTooManyRequests {
		r.were429++
	}
	for _, e := range r.engines {
		if err := e.take(l); err != nil {
			return err
		}
	}
	r.changes.end()
	return nil
}

// prepare makes the request of a line, beside the goroutine that decides.
func prepare(l *accesslog.Line) {
	if r := newRequest(l); r != nil {
		l.Value = r
	}
}

// report returns what was found.
func (r *run) report() *Report {
	report := &Report{
		Log:   newLog(r.Logs, &r.log, r.late, r.were429),
		Zones: r.tallies[0].report(&r.Options), Against: r.changes.report(&r.Options), Notes: r.notes(),
	}
	if r.from != 0 {
		report.Log.From, report.Log.To = stamp(r.from/int64(time.Millisecond)), stamp(r.to/int64(time.Millisecond))
	}
	return report
}

// notes returns what the reader of the report has to know.
func (r *run) notes() []string {
	notes := []string{}
	e, log := r.engines[0], &r.log
	if r.were429 > 0 {
		notes = append(notes, notes429(r.were429))
	}
	notes = append(notes, e.plan.notes...)
	if log.Whole > 0 {
		notes = append(notes, fmt.Sprintf("%d requests have times in whole seconds: figures for windows of a few seconds are rough", log.Whole))
	}
	if r.late > 0 {
		notes = append(notes, notesLate(r.late, r.Reorder))
	}
	for _, file := range log.Truncated {
		notes = append(notes, file+" ends within a line, or within its compressed data")
	}
	if e.unread > 0 {
		notes = append(notes, fmt.Sprintf("%d requests have a URI that no server accepts, and were left out", e.unread))
	}
	if e.full {
		notes = append(notes, "a store was full: keys that used least of their limit were forgotten, so that more may be denied than the report says; raise --memory, or max_keys")
	}
	for _, z := range r.tallies[0].zones {
		if n, estimated := z.keys.keys(); estimated && n > 0 {
			notes = append(notes, fmt.Sprintf("zone %s: keys are estimated from one of %d, to within %.1f %%; raise --memory", z.info.name, 1<<z.keys.skip, 200/math.Sqrt(float64(len(z.keys.of)))))
		}
		if z.dropped > 0 {
			notes = append(notes, fmt.Sprintf("zone %s: more keys were denied than fit into the memory; %d that were denied least were forgotten, and may count twice; raise --memory", z.info.name, z.dropped))
		}
	}
	return notes
}

func notes429(n int64) string {
	return fmt.Sprintf("%d requests were answered 429 already: a log that was made under a limit hides demand, for clients that are denied wait or leave", n)
}

func notesLate(n int64, reorder time.Duration) string {
	return fmt.Sprintf("%d requests came more than %v late in the log, and count at the time of those before them; raise --reorder", n, reorder)
}

// readKeys reads a file with a key a line.
func readKeys(name string) (map[string]bool, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	keys := make(map[string]bool)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key := strings.TrimSuffix(lines.Text(), "\r"); key != "" {
			keys[key] = true
		}
	}
	return keys, lines.Err()
}
