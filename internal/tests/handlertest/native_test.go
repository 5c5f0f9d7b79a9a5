package handlertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestNative holds when a server may decide on gcra by itself: with the zone alone
// in every handler, and with one limit that it can keep.
func TestNative(t *testing.T) {
	const (
		gcra  = `"algorithm":{"name":"gcra","native":"auto"}`
		burst = `"algorithm":{"name":"gcra","native":"auto","burst":5}`
		limit = `"limits":[{"max":10,"window":"1m"}]`
		other = `,{"name":"other","limits":[{"max":1,"window":"1s"}]}`
	)
	script, auto := window.GCRA{}, window.GCRA{Native: window.NativeAuto}
	for i, c := range []struct {
		zone  string
		more  []string // zones beside it, for each handler
		where string   // of the error; empty: none
		want  window.Algorithm
	}{
		0:  {gcra + `,` + limit, []string{""}, "", auto},
		1:  {burst + `,` + limit, []string{""}, "", window.GCRA{Burst: 5, Native: window.NativeAuto}},
		2:  {gcra + `,` + limit, []string{"", ""}, "", auto},
		3:  {`"algorithm":{"name":"gcra","native":"on"},` + limit, []string{""}, "", window.GCRA{Native: window.NativeOn}},
		4:  {`"algorithm":{"name":"gcra","native":"off","burst":"5"},` + limit, []string{""}, "", window.GCRA{Burst: 5}},
		5:  {gcra + `,` + limit, []string{other}, "", script},
		6:  {gcra + `,` + limit, []string{"", other}, "", script},
		7:  {gcra + `,` + limit, []string{other, ""}, "", script},
		8:  {`"algorithm":{"name":"gcra","native":"on"},` + limit, []string{"", other}, "native on: there are other zones in the handler; use native auto", nil},
		9:  {burst + `,"limits":[{"max":10,"window":"1m"},{"max":20,"window":"1h"}]`, []string{""}, "", window.GCRA{Burst: 5}},
		10: {gcra + `,"limits":[{"max":7,"window":"1s"}]`, []string{""}, "", script},
		11: {gcra + `,"limits":[{"max":0,"window":"1s"}]`, []string{""}, "", script},
		12: {gcra + `,"limits":[{"max":"{http.vars.none}","window":"1m"}],"fallback":{"max":10,"window":"1m"}`, []string{""}, "", script},
		13: {`"algorithm":{"name":"zset"},` + limit, []string{""}, "", window.Zset{}},
		14: {`"pack":9,` + gcra + `,` + limit, []string{""}, "", script},
		15: {`"algorithm":{"name":"gcra"},` + limit, []string{""}, "", script},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			store, config := NewFake(t, nil)
			store.Become(Decides(window.Decision{Allowed: true}, window.Decision{Allowed: true}))
			base, err := caddy.ProvisionContext(&caddy.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := caddy.NewContext(base)
			defer cancel()
			var handlers []caddyhttp.MiddlewareHandler
			for _, more := range c.more {
				h, err := Another(ctx, fmt.Sprintf(`{"zones":[{"name":"api",%s}%s],"store":%s}`, c.zone, more, config))
				if err != nil {
					if c.where == "" || !strings.Contains(err.Error(), "zone api: algorithm gcra: "+c.where) {
						t.Errorf("error %v, want %q", err, c.where)
					}
					return
				}
				handlers = append(handlers, h)
			}
			if c.where != "" {
				t.Fatalf("no error, want %q", c.where)
			}
			Serve(t, Get(), handlers...)
			for _, charges := range store.Taken() {
				if charges[0].Algorithm != c.want {
					t.Errorf("algorithm %+v, want %+v", charges[0].Algorithm, c.want)
				}
				if packed := strings.Contains(c.zone, `"pack":9`); packed != (charges[0].Pack == 9) {
					t.Errorf("pack %d of %s", charges[0].Pack, c.zone)
				}
				if err := engine.CheckCharges(charges); err != nil {
					t.Error(err)
				}
			}
			if len(store.Taken()) != len(handlers) {
				t.Errorf("%d requests, want %d", len(store.Taken()), len(handlers))
			}
		})
	}
}
