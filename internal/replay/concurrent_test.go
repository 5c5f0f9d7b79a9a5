package replay_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
)

// Requests of a log hold their slots from their start to their end. A count by hand of random ones that overlap agrees on
// which are denied, with limits that deny before a slot is taken, too.
func TestConcurrentRequestsOverlap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		slots, limit := 1+rng.IntN(4), 0
		zone := fmt.Sprintf("zone z {\nconcurrent %d\n}", slots)
		if seed%2 == 1 {
			limit = 20 + rng.IntN(60)
			zone = fmt.Sprintf("zone z {\nlimit %d 1h\nconcurrent %d\n}", limit, slots)
		}
		var log strings.Builder
		var open []int64 // ends of requests that hold a slot
		passed, full, over, now := 0, int64(0), int64(0), int64(start*1000)
		for range 200 {
			now += 2 * rng.Int64N(15) // even, and ends are odd: no two are at one time
			length := 1 + 2*rng.Int64N(50)
			log.WriteString(strings.Replace(logged(float64(now+length)/1000, "", ""), `"duration":0.001`, fmt.Sprintf(`"duration":%.3f`, float64(length)/1000), 1))
			var held []int64
			for _, end := range open {
				if end > now {
					held = append(held, end)
				}
			}
			open = held
			isFull, isOver := len(open) >= slots, limit > 0 && passed >= limit
			if isFull {
				full++
			}
			if isOver {
				over++
			}
			if !isFull && !isOver {
				passed++
				open = append(open, now+length)
			}
		}
		config := "http://example.com {\nroute {\nsliding_window {\n" + zone + "\n}\nrespond ok\n}\n}\n"
		report, err := replay.Run(options(file(t, "Caddyfile", config), file(t, "access.log", log.String())))
		if err != nil {
			t.Fatal(err)
		}
		z := report.Zones[0]
		want := []replay.Limit{{Limit: fmt.Sprintf("%d at the same time", slots), Denied: full}}
		if limit > 0 {
			want = append([]replay.Limit{{Limit: fmt.Sprintf("%d in 1h", limit), Denied: over}}, want...)
		}
		if fmt.Sprint(z.Limits) != fmt.Sprint(want) || z.Denied != int64(200-passed) || full == 0 || passed == 0 {
			t.Errorf("seed %d: denied %d, by limit %v, want %d, %v", seed, z.Denied, z.Limits, 200-passed, want)
		}
	}
}

// A log does not tell when an answer began, so that slots are held until it ended: the report says so.
func TestConcurrentUntilStatus(t *testing.T) {
	report, err := replay.Run(options(file(t, "Caddyfile", site("", "concurrent 1 {\nhold status\n}")), file(t, "access.log", logged(start, "", ""))))
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, "does not tell when an answer began") {
		t.Errorf("notes %q", notes)
	}
}

// Zones that do not deny hold slots of their own.
func TestConcurrentInShadow(t *testing.T) {
	var log strings.Builder
	for i := range 20 {
		log.WriteString(strings.Replace(logged(start+float64(i)+3.5, "", ""), `"duration":0.001`, `"duration":3.5`, 1))
	}
	for _, enforce := range []string{"on", "shadow", "mark", "50%"} {
		report, err := replay.Run(options(file(t, "Caddyfile", strings.Replace(site("", "concurrent 1\nenforce "+enforce), "limit 2 1m", "", 1)), file(t, "access.log", log.String())))
		if err != nil {
			t.Fatal(err)
		}
		if z := report.Zones[0]; z.Requests != 20 || z.Denied != 15 || z.Limits[0].Denied != 15 { // every fourth passes
			t.Errorf("enforce %s: got %+v", enforce, z)
		}
	}
}

// An override of requests at the same time decides in a replay, too.
func TestConcurrentOverride(t *testing.T) {
	var log strings.Builder
	for i := range 20 {
		log.WriteString(strings.Replace(logged(start+float64(i)+3.5, "", ""), `"duration":0.001`, `"duration":3.5`, 1))
	}
	o := options(file(t, "Caddyfile", strings.Replace(site("", "concurrent 1"), "limit 2 1m", "", 1)), file(t, "access.log", log.String()))
	o.Overrides = file(t, "overrides.json", `[{"zone":"z","key":"192.0.2.1","concurrent":2}]`)
	report, err := replay.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if z := report.Zones[0]; z.Denied != 10 { // two of four pass
		t.Errorf("got %+v", z)
	}
}
