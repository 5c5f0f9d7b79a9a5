package inflight

import "testing"

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A request waits for the units that are on their way when it asks: for all of them, in whatever order they come, and for
// no later ones.
func TestLandingEndsUnderAStreamOfUnits(t *testing.T) {
	const counter = 7
	f := New()
	begin := func() *Group {
		f.Open(counter)
		return f.GiveBack(counter)
	}
	if f.Landing(counter) != nil {
		t.Error("nothing is on its way, and a request waits")
	}
	a, b := begin(), begin()
	first := f.Landing(counter)
	c := begin()
	second := f.Landing(counter)
	d := begin()
	f.Landed(counter, c)
	f.Landed(counter, b)
	if isClosed(first) || isClosed(second) {
		t.Error("a request goes on before the units that were on their way first")
	}
	f.Landed(counter, a)
	if !isClosed(first) || !isClosed(second) {
		t.Error("a request waits for units that were given back after it had asked")
	}
	third := f.Landing(counter)
	if isClosed(third) {
		t.Error("the last units are not back")
	}
	for range 1000 { // units that come and go, and nobody waits for
		f.Landed(counter, begin())
	}
	f.Open(counter)
	f.Landed(counter, d)
	if !isClosed(third) || f.Landing(counter) != nil || !f.Any(counter) {
		t.Error("nothing is on its way, and one receipt is open")
	}
	f.Settle(counter)
	if f.Any(counter) {
		t.Error("all receipts are settled")
	}
}
