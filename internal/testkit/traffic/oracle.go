package traffic

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// Accuracy is how often an algorithm was right, judged by what the algorithm itself admitted before: a request is wrongly allowed if its trailing window then
// holds more than the limit, and wrongly denied if it would not have.
type Accuracy struct {
	Requests, Denied              int
	WronglyAllowed, WronglyDenied int
	Worst                         int // most admitted in any trailing window
}

// WronglyAllowedShare is in % of requests.
func (a Accuracy) WronglyAllowedShare() float64 { return percent(a.WronglyAllowed, a.Requests) }

// WronglyDeniedShare is in % of requests.
func (a Accuracy) WronglyDeniedShare() float64 { return percent(a.WronglyDenied, a.Requests) }

// Overshoot is in % of the limit.
func (a Accuracy) Overshoot() float64 { return max(0, percent(a.Worst-Limit, Limit)) }

// Over returns how many of the admissions at some times, in ms, found more than
// limit in their trailing window, themselves included.
func Over(times []int64, limit int, length time.Duration) int {
	times = slices.Sorted(slices.Values(times))
	over := 0
	for i := limit; i < len(times); i++ {
		if times[i]-times[i-limit] < length.Milliseconds() {
			over++
		}
	}
	return over
}

func percent(part, all int) float64 { return 100 * float64(part) / float64(max(1, all)) }

// Judge runs the arrivals through the algorithm's Go twin.
func Judge(algorithm window.Algorithm, arrivals []Arrival) Accuracy {
	var now int64
	store := memory.New(memory.Options{Now: func() int64 { return now }, SweepInterval: -1})
	defer func() { _ = store.Close() }()
	admitted := make(map[int][]int64)
	var a Accuracy
	for _, req := range arrivals {
		now = req.At
		ds, err := store.Take(context.Background(), []window.Charge{{
			Zone: "z", Key: strconv.Itoa(req.Key), Policies: Policies, Cost: 1, Algorithm: algorithm,
		}})
		if err != nil {
			panic(err) // the charge is the same every time
		}
		past := admitted[req.Key]
		for len(past) > 0 && past[0] <= now-Length.Milliseconds() {
			past = past[1:]
		}
		a.Requests++
		room := len(past) < Limit
		switch {
		case ds[0].Allowed:
			past = append(past, now)
			if !room {
				a.WronglyAllowed++
			}
		default:
			a.Denied++
			if room {
				a.WronglyDenied++
			}
		}
		a.Worst = max(a.Worst, len(past))
		admitted[req.Key] = past
	}
	return a
}
