// Package httplimit limits the rate of requests to an http.Handler.
//
// [Middleware] asks a window.Limiter for each request, and answers those that are denied. Middlewares
// may share a limiter or its store, and follow each other: what the first has counted stays counted
// if the second denies.
package httplimit

import (
	"net"
	"net/http"
	"strconv"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Middleware limits the requests of each key. Answers have the fields RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-11). Denials have status 429, Retry-After and problem details
// (RFC 9457), or plain text if the client prefers that. It is safe for concurrent use.
type Middleware struct {
	// What decides. While the store is away, requests are answered with status 503 unless OnError is
	// window.Local or window.Allow.
	Limiter window.Limiter
	// The key of a request, and false for requests that are not limited. A client that can choose its key,
	// as by X-Forwarded-For without a proxy that sets it, has no limit. Default: RemoteIP.
	KeyFunc func(*http.Request) (key string, ok bool)
}

// RemoteIP is the address of the connection.
func RemoteIP(r *http.Request) (string, bool) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr, true // a socket has no port
	}
	return host, true
}

// Wrap returns a handler that passes on to next what the limits let pass.
func (m Middleware) Wrap(next http.Handler) http.Handler {
	key := m.KeyFunc
	if key == nil {
		key = RemoteIP
	}
	zone := m.Limiter.Zone.Charge("", 1)
	quotas := answer.NewQuotas(zone.Zone, zone.Policies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, ok := key(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		ds, err := m.Limiter.Decide(r.Context(), k, 1)
		if len(ds) > 0 && len(ds) <= answer.MostAnnounced {
			new(answer.Lines).Set(w.Header(), quotas, ds)
		}
		switch {
		case err == nil && window.Allowed(ds):
			next.ServeHTTP(w, r)
		case err != nil:
			refuse(w, r, &answer.Problem{
				Status: http.StatusServiceUnavailable, Title: "Temporarily unavailable", Kind: answer.ProblemCapacity,
				Detail: "The rate limit cannot be checked at the moment.", RetryAfter: 1,
			})
		default:
			p := &answer.Problem{
				Status: http.StatusTooManyRequests, Title: "Rate limit exceeded", Kind: answer.ProblemQuota,
				Detail: "The limit of requests is reached.", RetryAfter: answer.RetryAfter(ds[answer.Tightest(ds)].RetryAfter, 0),
			}
			for i := range ds {
				if !ds[i].Allowed {
					p.Violated = append(p.Violated, quotas.Limits[i].Name)
				}
			}
			refuse(w, r, p)
		}
	})
}

func refuse(w http.ResponseWriter, r *http.Request, p *answer.Problem) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	p.Write(w, r)
}
