package slidingwindow

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Jitter makes clients come later, never earlier.
func TestJitter(t *testing.T) {
	for _, wait := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, time.Hour, window.Never - 1} {
		for _, jitter := range []float64{0, 0.2, 1} {
			h := Handler{Jitter: jitter}
			earliest, latest := max(1, answer.Seconds(wait)), answer.Seconds(window.Never)
			if wait <= time.Hour {
				latest = max(1, answer.Seconds(wait+time.Duration(jitter*float64(wait))))
			}
			different := make(map[int64]bool)
			for range 1000 {
				got := h.retryAfter(wait)
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
	if got := (&Handler{Jitter: 1}).retryAfter(window.Never); got != 0 {
		t.Errorf("wait Never: got %d, want 0", got)
	}
}

// What is written by hand is what the library would have written.
func TestFieldsAsTheLibraryWritesThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func() int64 {
		if r.IntN(4) == 0 {
			return []int64{0, 1, 9, 10, answer.MaxSFInteger - 1, answer.MaxSFInteger, answer.MaxSFInteger + 1, math.MaxInt64}[r.IntN(8)]
		}
		return r.Int64() >> r.IntN(63)
	}
	for range 2000 {
		zones := make([]*Zone, 1+r.IntN(3))
		req := new(request)
		var wantPolicies, wantState httpsfv.List
		for i := range zones {
			z := &Zone{Name: []string{"a", "a.b-c_D", "zone.with.a.name.of.64.letters.which.is.as.many.as.there.can.be0"}[r.IntN(3)]}
			zones[i] = z
			c := window.Charge{Zone: z.Name}
			for range 1 + 2*r.IntN(2) {
				c.Policies = append(c.Policies, window.Policy{Limit: number(), Window: time.Duration(1+number()>>20) * time.Millisecond})
			}
			several := len(c.Policies) > 1
			for _, p := range c.Policies {
				name := z.Name
				if several {
					name += ":" + duration.Short(p.Window)
				}
				d := window.Decision{Allowed: true, Remaining: number(), EffectiveWindow: time.Duration(number())}
				req.decisions = append(req.decisions, d)
				policy, state := httpsfv.NewItem(name), httpsfv.NewItem(name)
				quota, length := answer.Announced(p)
				policy.Params.Add("q", quota)
				policy.Params.Add("w", min(length, answer.MaxSFInteger))
				state.Params.Add("r", min(d.Remaining, answer.MaxSFInteger))
				state.Params.Add("t", min(answer.Seconds(d.EffectiveWindow), answer.MaxSFInteger))
				wantPolicies, wantState = append(wantPolicies, policy), append(wantState, state)
			}
			req.zones, req.charges = append(req.zones, z), append(req.charges, c)
		}
		wantPolicy, err := httpsfv.Marshal(wantPolicies)
		if err != nil {
			t.Fatal(err)
		}
		want, err := httpsfv.Marshal(wantState)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{"Ratelimit": {"earlier"}}
		(&Handler{Headers: fieldsIETF}).setFields(header, req)
		if got := header[answer.FieldRateLimit]; !slices.Equal(got, []string{"earlier, " + want}) {
			t.Fatalf("RateLimit: got %q, want %q", got, want)
		}
		if got := header[answer.FieldPolicy]; !slices.Equal(got, []string{wantPolicy}) {
			t.Fatalf("RateLimit-Policy: got %q, want %q", got, wantPolicy)
		}
	}
}
