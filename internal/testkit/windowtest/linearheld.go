package windowtest

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	heldRounds  = 30
	heldWorkers = 8
	heldOps     = 10 // per worker and round
)

// LinearizableHeld takes and gives back units of window.Concurrent from many goroutines on stores that share their
// counters, each as a process of its own. It holds that the decisions are those of one counter, in some order in which no
// call comes before one that had ended when it began; but units that are given back may count for a while more. settled
// returns when all stores have told that a number of units is held; nil: they count at once.
func LinearizableHeld(t *testing.T, settled func(c window.Charge, units int64), stores ...window.Store) {
	denied := 0
	for n := range heldRounds {
		r, name := random(n)
		c := holding("round "+strconv.Itoa(n), 1+r.Int64N(6))
		h := heldHistory{T: t, charge: c, settled: settled, stores: stores}
		h.round(r)
		if !porcupine.CheckOperations(heldLinear(c.Policies[0].Limit, settled == nil), h.history) {
			t.Errorf("%s: limit %d: no order of these %d calls has these answers:", name, c.Policies[0].Limit, len(h.history))
			for _, o := range h.history {
				t.Logf("%d to %d: %+v: %+v", o.Call, o.Return, o.Input, o.Output)
			}
			return
		}
		denied += h.denied
	}
	t.Logf("%d calls, %d denied", heldRounds*heldWorkers*heldOps, denied)
	if denied < 100 {
		t.Error("too few denied to mean something")
	}
}

// heldHistory is what happens on one counter.
type heldHistory struct {
	*testing.T
	charge  window.Charge
	settled func(window.Charge, int64)
	stores  []window.Store
	order   atomic.Int64

	mu      sync.Mutex // guards what follows
	history []porcupine.Operation
	denied  int
	units   int64
}

// heldCall takes units of a process, or gives them back. One of no process comes once all is told.
type heldCall struct {
	process int
	units   int64 // below 0: given back
}

type heldAnswer struct {
	allowed   bool
	remaining int64
}

func (h *heldHistory) call(process int, units int64) bool {
	c := h.charge
	var a heldAnswer
	begin := h.order.Add(1)
	if c.Cost = max(0, units); units < 0 {
		if err := h.stores[process].GiveBack(h.Context(), c, 0, -units); err != nil {
			h.Error(err)
		}
	} else {
		ds, err := h.stores[process].Take(h.Context(), []window.Charge{c})
		if err != nil {
			h.Error(err)
			return false
		}
		a = heldAnswer{ds[0].Allowed, ds[0].Remaining}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{Input: heldCall{process, units}, Call: begin, Output: a, Return: h.order.Add(1)})
	switch {
	case units < 0 || a.allowed:
		h.units += units
	default:
		h.denied++
	}
	return a.allowed
}

func (h *heldHistory) round(r *rand.Rand) {
	var workers sync.WaitGroup
	for i := range heldWorkers {
		r, process := rand.New(rand.NewPCG(r.Uint64(), 0)), i%len(h.stores)
		workers.Go(func() {
			var own []int64 // units that each request holds
			for range heldOps {
				if len(own) > 0 && r.IntN(2) == 0 {
					last := len(own) - 1
					h.call(process, -own[last])
					own = own[:last]
				} else if units := 1 + r.Int64N(min(2, h.charge.Policies[0].Limit)); h.call(process, units) {
					own = append(own, units)
				}
			}
		})
	}
	workers.Wait()
	if h.settled != nil {
		h.settled(h.charge, h.units)
		at := h.order.Add(1)
		h.history = append(h.history, porcupine.Operation{Input: heldCall{process: -1}, Call: at, Output: heldAnswer{}, Return: h.order.Add(1)})
	}
	for i := range h.stores {
		h.call(i, 1)
	}
}

// heldState is a counter: what it counts, and of that, units that each process has given back already.
type heldState struct {
	counted int64
	back    [2]int64
}

// heldLinear is a counter with a limit. What is given back counts until it is told, unless that is at once. It is told at
// any time, with the next units that the process gets at the latest.
func heldLinear(limit int64, atOnce bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{heldState{}} },
		Step: func(state, input, output any) (next []any) {
			s, c, a := state.(heldState), input.(heldCall), output.(heldAnswer)
			switch {
			case c.process < 0:
				return []any{heldState{counted: s.counted - s.back[0] - s.back[1]}}
			case c.units < 0 && atOnce:
				return []any{heldState{counted: s.counted + c.units}}
			case c.units < 0:
				s.back[c.process] -= c.units
				return []any{s}
			}
			for one := range s.back[0] + 1 {
				for other := range s.back[1] + 1 {
					told := heldState{s.counted - one - other, [2]int64{s.back[0] - one, s.back[1] - other}}
					for more := range told.back[c.process] + 1 {
						left := limit - told.counted + more
						if allowed := c.units <= left; allowed && a == (heldAnswer{true, left - c.units}) {
							passed := told
							passed.counted += c.units - more
							passed.back[c.process] -= more
							next = append(next, passed)
						} else if !allowed && a == (heldAnswer{false, max(0, left)}) {
							next = append(next, told)
						}
					}
				}
			}
			return next
		},
	}
	return m.ToModel()
}
