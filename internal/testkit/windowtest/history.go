package windowtest

import "github.com/slidingwindow/caddy-sliding-window/window"

// Kept is the history of a key, and the algorithm that decides on it.
type Kept struct {
	Algorithm window.Algorithm
	History   window.History
}

// Decide decides as a store does on a request of one charge.
func (k *Kept) Decide(now int64, c window.Charge, take bool) []window.Decision {
	ds := make([]window.Decision, len(c.Policies))
	c.Algorithm = k.Algorithm
	if k.History.Look(now, &c, ds) && take && c.Cost > 0 {
		k.History = k.History.Spend(now, &c, ds)
	} else {
		k.History = k.History.Explain(now, &c, ds, take)
	}
	return ds
}

// GiveBack gives back as a store does.
func (k *Kept) GiveBack(now int64, c window.Charge, at, units int64) {
	c.Algorithm = k.Algorithm
	k.History = k.History.GiveBack(now, &c, at, units)
}

// ChargeMore charges more as a store does.
func (k *Kept) ChargeMore(now int64, c window.Charge, units int64) {
	c.Algorithm = k.Algorithm
	k.History = k.History.ChargeMore(now, &c, units)
}
