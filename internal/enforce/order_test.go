package enforce

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// ordering is a Sync with a clock that the test sets, and what it obeyed last.
type ordering struct {
	Sync
	now    time.Time
	obeyed string
}

func (o *ordering) obey(order Order) { o.obeyed = order.Mode }

// makes makes an order of this Caddy, and returns it as the store keeps it.
func (o *ordering) makes(t *testing.T, mode string) string {
	t.Helper()
	if err := o.Make(o.now, Order{Mode: mode}, time.Hour, func(order Order) error { o.obey(order); return nil }); err != nil {
		t.Fatal(err)
	}
	return o.text
}

// hears returns what is to be written, and wants that to be so.
func (o *ordering) hears(t *testing.T, what, text, next, obeyed string) {
	t.Helper()
	if got, _ := o.Observe(text, o.now, o.obey); got != next || o.obeyed != obeyed {
		t.Errorf("%s: is to write %q and has obeyed %q, want %q and %q", what, got, o.obeyed, next, obeyed)
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Only a later order is obeyed, and an earlier one is replaced. Each order is later than those that its Caddy knows, also if
// the clock steps back.
func TestOnlyALaterOrderIsObeyed(t *testing.T) {
	first, second := &ordering{now: noon}, &ordering{now: noon.Add(-time.Hour)}
	second.hears(t, "nothing", "", "", "")
	x := first.makes(t, "shadow")
	first.hears(t, "not in the store", "", x, "shadow")
	second.hears(t, "an order", x, "", "shadow")
	y := second.makes(t, "on")
	second.hears(t, "its own order is later", x, y, "on")
	first.hears(t, "an order from a slow clock", y, "", "on")
	first.hears(t, "it once more", y, "", "on")
	first.hears(t, "an older snapshot", x, y, "on")
	first.hears(t, "no order", "nonsense", y, "on")
	first.hears(t, "an order without a time", `{"mode":"25%"}`, y, "on")
	third := first.makes(t, "25%")
	if !ParseOrder(third).At.After(ParseOrder(y).At) || !ParseOrder(y).At.After(ParseOrder(x).At) {
		t.Errorf("%s, %s and %s are not one after the other", x, y, third)
	}
	if err := first.Make(noon.Add(time.Hour), Order{Mode: "on"}, time.Hour, func(Order) error { return errors.New("not here") }); err == nil || first.text != third {
		t.Errorf("an order that could not be obeyed: got %v, %s", err, first.text)
	}
	first.now = noon.Add(Longest + time.Second)
	first.hears(t, "older than any order can hold", "", "", "25%")
}

// If two orders have the same time, the same one holds everywhere.
func TestOrdersOfOneTime(t *testing.T) {
	a, b := &ordering{now: noon}, &ordering{now: noon}
	x, y := a.makes(t, "shadow"), b.makes(t, "on")
	a.hears(t, "the smaller text", y, x, "shadow")
	b.hears(t, "the larger text", x, "", "shadow")
}

// The store is known to have lost an order that it had.
func TestLostOrder(t *testing.T) {
	o := &ordering{now: noon}
	x := o.makes(t, "shadow")
	for _, step := range []struct {
		text  string
		again bool
	}{{"", false}, {x, false}, {"", true}} {
		if _, again := o.Observe(step.text, noon, o.obey); again != step.again {
			t.Errorf("%q: again is %v, want %v", step.text, again, step.again)
		}
	}
}

// An order that was made by a wrong clock counts from when it was made, once the right time is known, unless the
// store has it.
func TestOrderByAWrongClock(t *testing.T) {
	o := &ordering{now: noon.Add(30 * time.Second)}
	o.makes(t, "shadow")
	last := o.makes(t, "on")
	o.Shift(-30*time.Second, o.obey)
	if got := ParseOrder(o.text); !got.At.Equal(ParseOrder(last).At.Add(-30*time.Second)) || !got.Until.Equal(noon.Add(time.Hour)) {
		t.Errorf("got %s of %s, want it 30 s before", o.text, last)
	}
	o.hears(t, "the store has it", o.text, "", "on")
	before := o.text
	o.Shift(time.Minute, o.obey)
	if o.text != before {
		t.Errorf("an order that the store has has become %s", o.text)
	}
	o.makes(t, "25%")
	o.Shift(-time.Hour, o.obey)
	if !ParseOrder(o.text).At.After(ParseOrder(before).At) {
		t.Errorf("%s is not after %s", o.text, before)
	}
	var none ordering
	none.Shift(time.Hour, none.obey)
	none.hears(t, "no order", "", "", "")
}

// An order holds until its end, and until Longest after it was made at most. Then the configuration holds.
func TestHoldsAt(t *testing.T) {
	for _, c := range []struct {
		order Order
		until time.Time
		mode  string
	}{
		{Order{Until: noon.Add(time.Hour), At: noon.Add(-time.Minute)}, noon.Add(time.Hour), "on"},
		{Order{Until: noon.Add(2 * Longest), At: noon.Add(-time.Minute)}, noon.Add(Longest - time.Minute), "on"},
		{Order{Until: noon, At: noon.Add(-time.Minute)}, noon, Config},
		{Order{Until: noon.Add(time.Hour), At: noon.Add(-Longest)}, noon, Config},
	} {
		c.order.Mode = "on"
		if got := c.order.HoldsAt(noon); got.Mode != c.mode || !got.Until.Equal(c.until) {
			t.Errorf("%+v: got %+v, want %s until %s", c.order, got, c.mode, c.until)
		}
	}
}

// Builds that compare texts, and not times, have written orders in this form and read them.
func TestOrderFormat(t *testing.T) {
	o := &ordering{now: noon}
	if got, want := o.makes(t, "shadow"), `{"mode":"shadow","until":"2026-01-01T13:00:00Z","at":"2026-01-01T12:00:00Z"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	old := fmt.Sprintf(`{"mode":"on","until":"2026-01-01T14:00:00.123456789Z","at":%q,"reason":"TICKET-7"}`, noon.Add(time.Nanosecond).Format(time.RFC3339Nano))
	o.hears(t, "an order of an old build", old, "", "on")
	if next := ParseOrder(o.makes(t, Config)); !next.At.After(ParseOrder(old).At) {
		t.Errorf("%+v is not later", next)
	}
}
