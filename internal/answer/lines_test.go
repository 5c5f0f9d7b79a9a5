package answer

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// listOf returns the value of a field as the library writes it.
func listOf(t *testing.T, list httpsfv.List) string {
	t.Helper()
	text, err := httpsfv.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What is written by hand is what the library would have written.
func TestFieldsAsTheLibraryWritesThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func() int64 {
		if r.IntN(4) == 0 {
			return []int64{0, 1, 9, 10, MaxSFInteger - 1, MaxSFInteger, MaxSFInteger + 1, math.MaxInt64}[r.IntN(8)]
		}
		return r.Int64() >> r.IntN(63)
	}
	alone := 0
	for range 2000 {
		zones := 1 + r.IntN(3)
		var items []Item
		var quotas *Quotas
		var decisions []window.Decision
		var wantPolicies, wantState httpsfv.List
		for range zones {
			zone := []string{"a", "a.b-c_D", "zone.with.a.name.of.64.letters.which.is.as.many.as.there.can.be0"}[r.IntN(3)]
			var policies []window.Policy
			for range 1 + 2*r.IntN(2) {
				policies = append(policies, window.Policy{Limit: number(), Window: time.Duration(1+number()>>20) * time.Millisecond})
			}
			decisions = make([]window.Decision, len(policies))
			for i, p := range policies {
				name := zone
				if len(policies) > 1 {
					name += ":" + normalize.Duration(p.Window)
				}
				d := window.Decision{Allowed: true, Remaining: number(), EffectiveWindow: time.Duration(number())}
				decisions[i] = d
				policy, state := httpsfv.NewItem(name), httpsfv.NewItem(name)
				quota, length := Announced(p)
				policy.Params.Add("q", quota)
				policy.Params.Add("w", min(length, MaxSFInteger))
				state.Params.Add("r", min(d.Remaining, MaxSFInteger))
				state.Params.Add("t", min(Seconds(d.EffectiveWindow), MaxSFInteger))
				wantPolicies, wantState = append(wantPolicies, policy), append(wantState, state)
			}
			quotas = NewQuotas(zone, policies)
			items = AppendTightest(items, quotas, decisions)
		}
		wantPolicy, want := listOf(t, wantPolicies), listOf(t, wantState)
		check := func(what string, header http.Header, wantState string) {
			t.Helper()
			if got := header[FieldRateLimit]; !slices.Equal(got, []string{wantState}) {
				t.Fatalf("%s: RateLimit: got %q, want %q", what, got, wantState)
			}
			if got := header[FieldPolicy]; !slices.Equal(got, []string{wantPolicy}) {
				t.Fatalf("%s: RateLimit-Policy: got %q, want %q", what, got, wantPolicy)
			}
		}
		header := http.Header{"Ratelimit": {"earlier"}}
		new(Lines).SetItems(header, items, true)
		check("beside others", header, "earlier, "+want)
		header = http.Header{}
		new(Lines).SetItems(header, items, false)
		check("several", header, want)
		if zones == 1 {
			header = http.Header{}
			new(Lines).Set(header, quotas, decisions)
			check("one zone", header, want)
			alone++
		}
	}
	if alone < 100 {
		t.Errorf("only %d times one zone", alone)
	}
}

// Jitter makes clients come later, never earlier.
func TestJitter(t *testing.T) {
	for _, wait := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, time.Hour, window.Never - 1} {
		for _, jitter := range []float64{0, 0.2, 1} {
			earliest, latest := max(1, Seconds(wait)), Seconds(window.Never)
			if wait <= time.Hour {
				latest = max(1, Seconds(wait+time.Duration(jitter*float64(wait))))
			}
			different := make(map[int64]bool)
			for range 1000 {
				got := RetryAfter(wait, jitter)
				if got < earliest || got > latest {
					t.Fatalf("wait %s, jitter %v: got %d, want from %d to %d", wait, jitter, got, earliest, latest)
				}
				different[got] = true
			}
			if wait == time.Hour && (len(different) > 1) != (jitter > 0) {
				t.Errorf("wait %s, jitter %v: got %d different values", wait, jitter, len(different))
			}
		}
	}
	if got := RetryAfter(window.Never, 1); got != 0 {
		t.Errorf("wait Never: got %d, want 0", got)
	}
}
