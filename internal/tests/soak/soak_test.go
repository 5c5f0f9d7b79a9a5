package soak_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

var (
	length   = flag.Duration("soak.length", 15*time.Second, "how long faults come")
	seed     = flag.Uint64("soak.seed", rand.Uint64(), "which faults come, and what is asked")
	document = flag.String("soak.report", "", "file for the report; empty: none")
)

// TestMain excuses toxiproxy, which now and then forgets a connection that it cuts off.
func TestMain(m *testing.M) {
	os.Exit(caddyrun.Main(m, func() {}, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")))
}

// TestSoak makes faults come at random under load. No limit is exceeded, everything that
// passed is counted, and nothing is left over.
func TestSoak(t *testing.T) {
	w := startWorld(t)
	w.soak(*length)
}

// soak makes faults come for a length of time, and reports what came of it.
func (w *world) soak(length time.Duration) {
	t := w.T
	t.Logf("-soak.seed %d", *seed)
	warmUp := startLoad(t, *seed+1, w.addresses)
	w.streams.start(*seed + 1)
	time.Sleep(time.Second)
	w.streams.end()
	warmUp.end()
	base := w.leftovers()

	l := startLoad(t, *seed, w.addresses)
	w.streams.start(*seed)
	happened := w.fail(l, length)
	w.streams.end()
	w.checkStreams(l)
	l.end()
	r := report{length: time.Since(l.start).Round(time.Second), load: l, streams: w.streams, faults: happened}
	r.base, r.rest = base, w.settle(base)

	r.tally = make(map[string]tally)
	denied := 0
	for _, z := range zones {
		own := tally{admitted: l.statuses[z.name][http.StatusOK], denied: l.statuses[z.name][http.StatusTooManyRequests]}
		for key := range keys {
			own.over += over(l.admitted[counter{z.name, key}], z.most, z.window)
		}
		if own.over > 0 {
			t.Errorf("%s: %d admissions over %d in %s", z.name, own.over, z.most, z.window)
		}
		if own.admitted == 0 {
			t.Errorf("%s: nothing passed", z.name)
		}
		denied += own.denied
		r.tally[z.name] = own
	}
	if denied == 0 {
		t.Error("nothing was denied: this is no load")
	}
	// What passed while the warm-up ran is counted as well.
	r.ledger = account{passed: l.passed(ledger) + warmUp.passed(ledger), counted: l.counted(ledger), inDoubt: l.refused(ledger)}
	r.local = account{passed: l.passed(ledgerLocal) + warmUp.passed(ledgerLocal), counted: l.counted(ledgerLocal), inDoubt: int64(r.count() * callers * 3)} // three failures in a row open the breaker
	if a := r.ledger; a.counted < a.passed || a.counted > a.passed+a.inDoubt {
		t.Errorf("%s: %+v, want all that passed counted, and no more than were asked for", ledger, a)
	}
	if a := r.local; a.counted+a.inDoubt < a.passed || a.counted > a.passed+a.inDoubt {
		t.Errorf("%s: %+v, want all that passed counted, but for what Redis may or may not have heard of", ledgerLocal, a)
	}
	for name, statuses := range l.statuses {
		for status := range statuses {
			if status != http.StatusOK && status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable || name == ledgerLocal && status != http.StatusOK {
				t.Errorf("%s: status %d, %d times", name, status, statuses[status])
			}
		}
	}
	for _, p := range append(slices.Clone(w.caddys), w.streams.victim) {
		if strings.Contains(p.Log.String(), "panic") {
			t.Errorf("caddy panicked:\n%s", p.Log)
		}
	}
	t.Log(r.text())
	if *document != "" && !t.Failed() {
		if err := r.write(*document, t.Name()); err != nil {
			t.Error(err)
		}
	}
}

// fail makes one fault come after the other, until the time is over.
func (w *world) fail(l *load, length time.Duration) map[string]happened {
	r := rand.New(rand.NewPCG(*seed, 0xfa0175))
	all := make(map[string]happened)
	for end := time.Now().Add(length); time.Now().Before(end) && !w.Failed(); {
		f, began := w.faults[r.IntN(len(w.faults))], time.Now()
		over := f.begin(w, r)
		time.Sleep(time.Duration(50+r.IntN(1_500)) * time.Millisecond)
		over()
		h := all[f.name]
		h.times++
		h.recovery = max(h.recovery, w.healed(l))
		all[f.name] = h
		w.periods = append(w.periods, period{began, time.Now()})
		time.Sleep(time.Duration(r.IntN(1_500)) * time.Millisecond)
	}
	return all
}
