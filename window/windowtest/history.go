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

// Settle settles as a store does.
func (k *Kept) Settle(now int64, c window.Charge, at, delta int64) {
	c.Algorithm = k.Algorithm
	k.History = k.History.Settle(now, &c, at, delta)
}
