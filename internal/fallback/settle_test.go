package fallback_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// admit admits a request of one charge, by the store or in its place, and returns its receipt.
func (s *site) admit(t *testing.T, c window.Charge) *engine.Receipt {
	t.Helper()
	ds, cause := s.Take(t.Context(), []window.Charge{c})
	r := &engine.Receipt{Charge: c, InDoubt: errors.Is(cause, window.ErrUnknown)}
	if cause != nil {
		var err error
		r.Origin = engine.InProcess
		if ds, err = s.TakeLocal(t.Context(), []window.Charge{c}, cause, s.share, 0); err != nil {
			t.Fatal(err)
		}
	}
	if !ds[0].Allowed {
		t.Fatalf("the charge is denied: %+v", ds[0])
	}
	r.At, r.Former = ds[0].At, ds[0].Former
	return r
}

// settle makes units the cost of an admitted charge.
func (s *site) settle(t *testing.T, r *engine.Receipt, units int64) error {
	t.Helper()
	own, ok := r.Settle(units)
	if !ok {
		t.Fatal("the receipt was settled before")
	}
	return s.SettleBatch(t.Context(), []engine.Settlement{own})[0]
}

// eachSettled is eachAlgorithm for those whose charges have receipts.
func eachSettled(t *testing.T, run func(t *testing.T, s *site, c window.Charge)) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		if engine.CheckReceipts(c.Algorithm, c.Lease) == nil {
			c.Policies = []window.Policy{{Limit: 100, Window: 10 * time.Minute}}
			if c.Algorithm.Name() == "layers" {
				c.Algorithm = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
			}
			c.Cost = 10
			run(t, s, c)
		}
	})
}

// Receipts of the store and of this process are settled while the store is away, and it has the
// settled amounts once it is back.
func TestSettleWhileAway(t *testing.T) {
	eachSettled(t, func(t *testing.T, s *site, c window.Charge) {
		there := []*engine.Receipt{s.admit(t, c), s.admit(t, c), s.admit(t, c)}
		s.away(t)
		here := []*engine.Receipt{s.admit(t, c), s.admit(t, c), s.admit(t, c)}
		for i, units := range []int64{0, 10, 17} {
			if err := errors.Join(s.settle(t, there[i], units), s.settle(t, here[i], units)); err != nil {
				t.Errorf("%d units: %v", units, err)
			}
		}
		if d, _ := s.foresee(t, c); d.Remaining != 100-30-7-0-10-17 {
			t.Errorf("while it is away %d remain, want 36: what the store gets back does not pass here before", d.Remaining)
		}
		s.back()
		synctest.Wait()
		if d, by := s.foresee(t, c); d.Remaining != 100-10-17-10-17 || by != engine.SourceStore {
			t.Errorf("when it is back %d remain, by %q, want 46 by the store", d.Remaining, by)
		}
	})
}

// What this process admitted, and is settled when the store is back, is owed with the settled amount.
func TestSettleWhenBack(t *testing.T) {
	eachSettled(t, func(t *testing.T, s *site, c window.Charge) {
		s.away(t)
		here := []*engine.Receipt{s.admit(t, c), s.admit(t, c)}
		s.back()
		if got := s.remote.booked("zone"); got != 0 {
			t.Errorf("%d units were booked before they were settled, want none", got)
		}
		if err := errors.Join(s.settle(t, here[0], 0), s.settle(t, here[1], 13)); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.remote.booked("zone"); got != 13 {
			t.Errorf("%d units were booked, want 13", got)
		}
	})
}

// A receipt that the store may have charged as well is not booked again, and its units stay there.
func TestSettleInDoubt(t *testing.T) {
	for _, fault := range []mode{lost, dropped} {
		eachSettled(t, func(t *testing.T, s *site, c window.Charge) {
			s.remote.become(fault)
			back, more := s.admit(t, c), s.admit(t, c)
			s.remote.become(up)
			if err := errors.Join(s.settle(t, back, 0), s.settle(t, more, 12)); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := s.remote.booked("zone"); got != 2 {
				t.Errorf("%d units were booked, want the 2 above the cost", got)
			}
		})
	}
}

// A give-back that may have run is not repeated, and its error says so. More units are neither.
func TestSettleAnswerIsLost(t *testing.T) {
	eachSettled(t, func(t *testing.T, s *site, c window.Charge) {
		back, more := s.admit(t, c), s.admit(t, c)
		s.remote.become(lost)
		for _, err := range []error{s.settle(t, back, 0), s.settle(t, more, 15)} {
			if !errors.Is(err, window.ErrUnknown) {
				t.Errorf("SettleBatch = %v, want ErrUnknown", err)
			}
		}
		s.remote.become(up)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.remote.attempts(); got != 2 {
			t.Errorf("%d settlements were tried, want 2", got)
		}
	})
}

// Give-backs that cannot be kept until the store is back fail, and the units stay.
func TestSettleIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, time.Hour)
		r := s.admit(t, c)
		s.BoundDebtors(0)
		s.away(t)
		if err := s.settle(t, r, 0); !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("SettleBatch = %v, want ErrUnavailable", err)
		}
	})
}

// What is given back does not count as known: when the store goes, it is free here.
func TestKnownAfterGiveBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 5, time.Hour)
		for range 4 {
			s.admit(t, c)
		}
		for range 20 {
			if err := s.settle(t, s.admit(t, c), 0); err != nil {
				t.Fatal(err)
			}
		}
		s.away(t)
		s.want(t, "without the store", 1, c)
	})
}

// A receipt is settled once.
func TestReceiptOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		r := s.admit(t, charge("zone", "key", 5, time.Hour))
		if err := s.settle(t, r, 0); err != nil {
			t.Error(err)
		}
		if again, ok := r.Settle(0); ok {
			t.Errorf("settled again: %+v", again)
		}
		if again, ok := (*engine.Receipt)(nil).Settle(0); ok {
			t.Errorf("settled what was not charged: %+v", again)
		}
	})
}
