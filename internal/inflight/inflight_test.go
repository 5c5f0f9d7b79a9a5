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
	if f.PendingRefunds(counter) != nil {
		t.Error("nothing is on its way, and a request waits")
	}
	a, b := begin(), begin()
	first := f.PendingRefunds(counter)
	c := begin()
	second := f.PendingRefunds(counter)
	d := begin()
	f.Refunded(counter, c)
	f.Refunded(counter, b)
	if isClosed(first) || isClosed(second) {
		t.Error("a request goes on before the units that were on their way first")
	}
	f.Refunded(counter, a)
	if !isClosed(first) || !isClosed(second) {
		t.Error("a request waits for units that were given back after it had asked")
	}
	third := f.PendingRefunds(counter)
	if isClosed(third) {
		t.Error("the last units are not back")
	}
	for range 1000 { // units that come and go, without a waiter
		f.Refunded(counter, begin())
	}
	f.Open(counter)
	f.Refunded(counter, d)
	if !isClosed(third) || f.PendingRefunds(counter) != nil || !f.Any(counter) {
		t.Error("nothing is on its way, and one receipt is open")
	}
	f.Settle(counter)
	if f.Any(counter) {
		t.Error("all receipts are settled")
	}
}

// A request waits for the turns that others have when it comes, and for no later ones.
func TestTurnsOfThoseThatCameFirst(t *testing.T) {
	const counter = 7
	f := New()
	if f.Turn(counter) != nil || f.Turns(counter) != nil {
		t.Error("a counter without receipts has a turn")
	}
	f.Open(counter)
	a := f.Turn(counter)
	first := f.Turns(counter)
	b := f.Turn(counter)
	f.EndTurn(counter, a)
	if !isClosed(first) {
		t.Error("a request waits for a turn that began after it came")
	}
	second := f.Turns(counter)
	f.Settle(counter)
	if isClosed(second) || f.Turns(counter) == nil {
		t.Error("a turn has ended with the last receipt")
	}
	if f.Any(counter) || f.Turn(counter) != nil {
		t.Error("a turn is taken for a receipt")
	}
	f.EndTurn(counter, b)
	if !isClosed(second) || f.Turns(counter) != nil || f.Any(counter) {
		t.Error("a turn has not ended")
	}
}
