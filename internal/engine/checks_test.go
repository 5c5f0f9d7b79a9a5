package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestInvalid holds that errors name the zone, and what is wrong.
func TestInvalid(t *testing.T) {
	c := window.Charge{Zone: "api", Key: "secret", Cost: 1, Policies: []window.Policy{{Limit: 1, Window: time.Second}}, Algorithm: window.Slices{Count: -1}}
	bad := c
	bad.Policies = []window.Policy{{Limit: -1, Window: time.Second}}
	bad.Algorithm = window.Zset{}
	for want, err := range map[string]error{
		`zone "api": invalid charge: slices: count -1: must be greater than 0`:       engine.CheckCharges([]window.Charge{c}),
		`zone "api": invalid charge: limit -1 is negative; use 0 to deny everything`: engine.CheckCharges([]window.Charge{bad}),
		`zone "api": invalid charge: delta -9223372036854775808 is beyond 2^53`:      engine.CheckSettle(c, -1<<63),
		`zone "": invalid charge: no algorithm`:                                      engine.CheckReset(window.Charge{}),
		`zone "api": invalid charge: the same counter twice in one request`:          engine.CheckCharges(twice(c)),
	} {
		if err == nil || err.Error() != want || !errors.Is(err, window.ErrInvalid) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := engine.CheckCharges(nil); err != nil {
		t.Errorf("CheckCharges(nil) = %v", err)
	}
}

func twice(c window.Charge) []window.Charge {
	c.Algorithm = window.Zset{}
	return []window.Charge{c, c}
}

// TestMostFields has the largest number of fields of a charge, and one more.
func TestMostFields(t *testing.T) {
	c := window.Charge{Algorithm: window.Stream{}, Policies: []window.Policy{{Limit: 1, Window: time.Second}}, Fields: make([]string, 2*window.MaxFields)}
	if err := engine.CheckCharges([]window.Charge{c}); err != nil {
		t.Errorf("%d fields: %v", window.MaxFields, err)
	}
	c.Fields = append(c.Fields, "", "")
	if err := engine.CheckCharges([]window.Charge{c}); !errors.Is(err, window.ErrInvalid) {
		t.Errorf("%d fields: %v, want ErrInvalid", window.MaxFields+1, err)
	}
}
