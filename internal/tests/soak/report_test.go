package soak_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// tally is what became of a zone's requests.
type tally struct{ admitted, denied, over int }

// account is what passed in a ledger, what is counted in it, and of how many requests
// Redis may have heard without anybody knowing: those that were refused, or those
// that were under way when a fault began.
type account struct{ passed, counted, inDoubt int64 }

// happened is how often a fault came, and how long Redis was not used after the end
// of it at most.
type happened struct {
	times    int
	recovery time.Duration
}

// leftovers are what a process at rest has open, of both Caddys.
type leftovers struct {
	goroutines, connections int
	megabytes               int // of the heap, after the garbage was collected
}

type report struct {
	length        time.Duration
	load          *load
	streams       *streams
	faults        map[string]happened
	tally         map[string]tally
	ledger, local account
	base, rest    leftovers
}

// probe returns a key that no request has asked for.
func (l *load) probe() int { return int(l.probes.Add(1)) + keys }

func (l *load) passed(name string) int64 { return int64(l.statuses[name][http.StatusOK]) }

func (l *load) refused(name string) int64 {
	return int64(l.statuses[name][http.StatusServiceUnavailable])
}

// get returns what an admin endpoint says.
func (w *world) get(p *caddyrun.Process, path string) string {
	w.Helper()
	return caddyrun.Fetch(w.T, http.DefaultClient, "http://"+p.Admin+path)
}

func (w *world) leftovers() (all leftovers) {
	for _, p := range w.caddys {
		var n int
		if _, err := fmt.Sscanf(w.get(p, "/debug/pprof/goroutine?debug=1"), "goroutine profile: total %d", &n); err != nil {
			w.Fatal(err)
		}
		all.goroutines += n
		_ = w.get(p, "/debug/pprof/heap?gc=1")
		all.megabytes += int(w.metric(p, "go_memstats_heap_alloc_bytes") / 1e6)
	}
	for _, s := range w.servers {
		list, err := s.Client(w.T).ClientList(context.Background()).Result()
		if err != nil {
			w.Fatal(err)
		}
		all.connections += strings.Count(list, "cmd=evalsha")
	}
	return all
}

// memory is by how many megabytes heaps may grow: with what is known of counters, and
// was denied. The client of a Cluster keeps 8 MB where no two slots that follow each other have one owner.
func (w *world) memory() int {
	if len(w.servers) > 2 {
		return 60
	}
	return 20
}

// settle waits until no goroutine is left that was not there before, and no connection
// that no pool holds, and returns what there is.
func (w *world) settle(base leftovers) (rest leftovers) {
	http.DefaultClient.CloseIdleConnections()
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
		rest = w.leftovers()
		if rest.goroutines <= base.goroutines && rest.connections <= len(w.caddys)*len(w.servers)*poolSize && rest.megabytes <= base.megabytes+w.memory() {
			return rest
		}
	}
	w.Errorf("at rest: %+v, and before %+v", rest, base)
	return rest
}

// metric returns the sum of all series of a metric.
func (w *world) metric(p *caddyrun.Process, name string) (sum float64) {
	for s := bufio.NewScanner(strings.NewReader(w.get(p, "/metrics"))); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name); ok && (rest[0] == '{' || rest[0] == ' ') {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				w.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// count returns how many faults there were.
func (r *report) count() (n int) {
	for _, h := range r.faults {
		n += h.times
	}
	return n
}

// text is the report in Markdown.
func (r *report) text() string {
	var s strings.Builder
	total := make(map[int]int)
	for _, statuses := range r.load.statuses {
		for status, n := range statuses {
			total[status] += n
		}
	}
	fmt.Fprintf(&s, "%s, %d CPUs, `-soak.seed %d`: %d requests, of which %d passed, %d were denied and %d got 503, and %d faults. ",
		r.length, runtime.NumCPU(), *seed, r.load.served.Load(), total[200], total[429], total[503], r.count())
	fmt.Fprintf(&s, "The longest request took %d ms, with a timeout of %s and the race detector. "+
		"%d goroutines, %d connections and %d MB of heap at rest before, %d, %d and %d after it, of both Caddys.\n\n",
		r.load.longest.Milliseconds(), timeout, r.base.goroutines, r.base.connections, r.base.megabytes,
		r.rest.goroutines, r.rest.connections, r.rest.megabytes)
	s.WriteString("| zone | at most in a window | passed | denied | over |\n|---|---|---|---|---|\n")
	for _, z := range zones {
		t := r.tally[z.name]
		fmt.Fprintf(&s, "| `%s` | %d in %s | %d | %d | %d |\n", z.name, z.most, z.window, t.admitted, t.denied, t.over)
	}
	s.WriteString("\n" + r.streams.text())
	s.WriteString("\n| ledger | passed | counted | difference explained by, at most |\n|---|---|---|---|\n")
	for _, a := range []struct {
		name string
		account
	}{{"`on_error deny`", r.ledger}, {"`on_error local`", r.local}} {
		fmt.Fprintf(&s, "| %s | %d | %d | %d |\n", a.name, a.passed, a.counted, a.inDoubt)
	}
	s.WriteString("\n| fault | times | Redis used again, at most after |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&s, "| %s | %d | %d ms |\n", name, r.faults[name].times, r.faults[name].recovery.Milliseconds())
	}
	return s.String()
}

// write puts the report between the markers of a test in a document.
func (r *report) write(path, test string) error {
	begin, end := "<!-- "+test+" -->\n", "<!-- /"+test+" -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+r.text()+end+after), 0o644)
}
