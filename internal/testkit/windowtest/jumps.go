package windowtest

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// testClockJumps moves the clock back and forth, as when a server takes over whose
// clock differs. Whatever happens, Remaining is from 0 to the limit, and no client waits for
// longer than a window. In elapsed time, where a step back counts as 0, no window holds more
// than the algorithm promises.
func testClockJumps(t *testing.T, open Open) {
	const limit, length = 10, 10_000
	each(t, open, func(f *fixture) {
		most := limit
		switch a := f.algo.(type) {
		case window.GCRA:
			most = 2*limit - 1
		case window.Slices:
			if a.Weighted {
				most = 2*limit - 1
			}
		}
		r, name := random(0)
		var gone int64
		var admitted []int64 // in that time
		add := func(ms int64) {
			f.clock.Add(ms)
			gone += max(0, ms)
		}
		// ask takes 1 and returns how long it is told to wait.
		ask := func(step int) time.Duration {
			c := f.charge("zone", "key", 1)
			look, d := f.peek(c)[0], f.take(c)[0]
			if look.Allowed != d.Allowed || look.RetryAfter != d.RetryAfter {
				f.Fatalf("%s, step %d: Peek = %+v, and then Take = %+v", name, step, look, d)
			}
			if d.Remaining < 0 || d.Remaining > limit || d.RetryAfter < 0 || d.RetryAfter > length*time.Millisecond ||
				d.ResetAfter < 0 || d.ResetAfter > 2*length*time.Millisecond || d.Allowed != (d.RetryAfter == 0) {
				f.Fatalf("%s, step %d: %+v", name, step, d)
			}
			if !d.Allowed {
				return d.RetryAfter
			}
			admitted = append(admitted, gone)
			for len(admitted) > 0 && admitted[0] <= gone-length {
				admitted = admitted[1:]
			}
			if len(admitted) > most {
				f.Fatalf("%s, step %d: %d admitted in a window, want %d at most", name, step, len(admitted), most)
			}
			return 0
		}
		for step := range 300 {
			switch n := r.IntN(40); n {
			case 0:
				add(r.Int64N(20_000))
			case 1, 2:
				add(5_000)
			case 3, 4:
				add(-5_000)
			case 5:
				add(-r.Int64N(20_000))
			default:
				add(r.Int64N(1_500))
			}
			if wait := ask(step); wait > 0 && r.IntN(4) == 0 {
				add(wait.Milliseconds())
				if again := ask(step); again > 0 {
					f.Fatalf("%s, step %d: denied again for %s after a wait of %s", name, step, again, wait)
				}
			}
		}
	})
}

// testWindowBefore1970 has a window that is longer than the clock has counted.
func testWindowBefore1970(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 1, per(2, Start+day))
		if window.CheckPolicy(f.algo, c.Policies[0]) != nil {
			return // layers would have too many slices
		}
		for i, want := range []bool{true, true, false} {
			if look, d := f.peek(c)[0], f.take(c)[0]; look.Allowed != want || d.Allowed != want {
				f.Errorf("request %d: Peek = %+v, Take = %+v, want allowed: %v", i+1, look, d, want)
			}
		}
	})
}

const day = 24 * 60 * 60 * 1000 // ms

// exactly runs a test on each algorithm that keeps every unit.
func exactly(t *testing.T, open Open, run func(f *fixture)) {
	for _, v := range variants {
		switch v.algo.(type) {
		case window.Zset, window.Log, window.Stream:
			t.Run(v.name, func(t *testing.T) { run(newFixture(t, open, v.algo)) })
		}
	}
}

// testClockBackInBatch has one batch of requests pass, and then be denied, before a unit that is
// there.
func testClockBackInBatch(t *testing.T, open Open) {
	exactly(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 1, per(3, 10_000))
		f.clock.Add(5_000)
		f.take(c)
		f.clock.Add(-5_000)
		one := []window.Charge{c}
		for i, r := range f.store.TakeBatch(f.Context(), [][]window.Charge{one, one, one}) {
			if r.Err != nil || r.Decisions[0].Allowed != (i < 2) {
				f.Errorf("request %d of a batch: %+v, want two to pass", i, r)
			}
		}
		f.clock.Add(1_000)
		if d := f.take(c)[0]; d.RetryAfter != 9*time.Second || d.ResetAfter != 9*time.Second {
			f.Errorf("a second later: %+v, want that it denies for 9s", d)
		}
	})
}

// testClockBackWithoutUnits steps the clock back after the units that still count were given
// back.
func testClockBackWithoutUnits(t *testing.T, open Open) {
	exactly(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 1, per(9, 10_000))
		f.take(f.charge("zone", "key", 1, per(9, 4_000)))
		for _, after := range []int64{5_000, 7_000} { // the first unit has left by then
			f.clock.Add(after)
			f.giveBack(c, f.take(c)[0].At, 1)
		}
		f.clock.Add(-3_600_000)
		f.take(c)
		f.wantRemaining(c, 8)
	})
}

// testForgottenStays has the newest units given back after others were forgotten, which a stream
// may keep: these do not count again, whether a window is raised or the clock steps back.
func testForgottenStays(t *testing.T, open Open) {
	exactly(t, open, func(f *fixture) {
		long, short := f.charge("zone", "key", 1, per(9, 20_000)), f.charge("zone", "key", 1, per(9, 10_000))
		for _, forgotten := range []window.Charge{short, long} {
			f.take(forgotten)
			f.clock.Add(25_000)
			f.giveBack(short, f.take(short)[0].At, 1)
			day := f.charge("zone", "key", 1, per(9, day))
			f.wantRemaining(day, 9)
			f.clock.Add(-10_000)
			f.take(f.charge("zone", "key", 10, long.Policies...)) // a denial moves what lies in the future
			f.wantRemaining(day, 9)
			f.take(long)
			f.wantRemaining(day, 8)
			f.clock.Add(day.Policies[0].Window.Milliseconds())
		}
	})
}

// testHorizonGoes has all units given back after others were forgotten, which a stream may keep:
// what is spent next is kept for no longer than its own window.
func testHorizonGoes(t *testing.T, open Open) {
	exactly(t, open, func(f *fixture) {
		long, short := f.charge("zone", "key", 1, per(9, 40_000)), f.charge("zone", "key", 1, per(9, 4_000))
		f.take(long)
		f.clock.Add(30_000)
		second := f.take(long)[0].At
		f.clock.Add(11_000)
		f.giveBack(short, f.take(short)[0].At, 1)
		f.giveBack(short, second, 1)
		f.take(short)
		f.clock.Add(5_000)
		f.take(short)
		f.wantRemaining(long, 8)
	})
}
