package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	caddyserver "github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// allocations are those that a handler adds to an allowed request.
var allocations = table{
	name:    "allocations",
	title:   "Allocations added to an allowed request",
	metrics: []string{"allocations/request"},
	about:   "`testing.AllocsPerRun` with the handler less the same without it; 1,000 keys, limit 1,000,000 in 1 m; 1,000 of `caddy-ratelimit`, which has memory for each unit.",
	once:    true,
	ratios: []report.Ratio{
		{Of: "memory, zset", Aim: report.AtMost(6)},
		{Of: "Redis, zset", Aim: report.AtMost(10)},
	},
	prepare: func(b *bench) ([]variant, error) {
		s, err := b.newServer()
		if err != nil {
			return nil, err
		}
		const zone = `"zones":[{"name":"api","key":"{http.request.header.X-Key}","limits":[{"max":1000000,"window":"1m"}]}]`
		redis, err := json.Marshal("redis://" + s.Addr)
		if err != nil {
			return nil, err
		}
		var variants []variant
		for _, h := range []struct{ name, module, config string }{
			{"memory, zset", "sliding_window", `{` + zone + `}`},
			{"Redis, zset", "sliding_window", fmt.Sprintf(`{%s,"store":{"module":"redis","url":%s}}`, zone, redis)},
			{"caddy-ratelimit", "rate_limit", `{"rate_limits":{"api":{"key":"{http.request.header.X-Key}","max_events":1000,"window":"1m"}}}`},
		} {
			variants = append(variants, variant{h.name, func() ([]float64, error) { return b.allocationsOf(h.module, h.config) }})
		}
		return variants, nil
	},
}

func (b *bench) allocationsOf(module, config string) ([]float64, error) {
	ctx, err := caddyserver.ProvisionContext(&caddyserver.Config{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := caddyserver.NewContext(ctx)
	defer cancel()
	loaded, err := ctx.LoadModuleByID("http.handlers."+module, []byte(config))
	if err != nil {
		return nil, err
	}
	handler := loaded.(caddyhttp.MiddlewareHandler)
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

	var failed error
	server := new(caddyhttp.Server)
	const keys = 1_000
	perRequest := func(serve func(http.ResponseWriter, *http.Request) error) float64 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		i := 0
		return testing.AllocsPerRun(20*keys, func() {
			w := header{http.Header{"Server": {"Caddy"}}} // as Caddy's server has set it
			r.Header["X-Key"] = append(r.Header["X-Key"][:0], keyName(i%keys))
			i++
			prepared := caddyhttp.PrepareRequest(r, caddyserver.NewReplacer(), w, server)
			if err := serve(w, prepared); err != nil {
				failed = err
			}
		})
	}
	with := func(w http.ResponseWriter, r *http.Request) error { return handler.ServeHTTP(w, r, next) }
	perRequest(with) // the keys are there, and connections
	added := perRequest(with) - perRequest(next)
	if failed != nil {
		return nil, errors.Join(errors.New("a request did not pass"), failed)
	}
	return []float64{added}, nil
}

// header is a response of which only the header is kept.
type header struct{ fields http.Header }

func (h header) Header() http.Header         { return h.fields }
func (h header) Write(b []byte) (int, error) { return len(b), nil }
func (h header) WriteHeader(int)             {}
