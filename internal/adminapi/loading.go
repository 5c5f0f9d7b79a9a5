package adminapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

const (
	longestLoad = 5 * time.Second       // that a request waits for
	lookAgain   = 20 * time.Millisecond // whether it has loaded
)

// isStarting reports whether the first configuration loads. Caddy's admin endpoint answers from before that.
func isStarting(r *http.Request) bool { return mayLoad(r) && caddy.ActiveContext().Context == nil }

// mayLoad reports whether a request came over the admin endpoint of a Caddy that goes on. Tests ask without a server, and
// start no Caddy.
func mayLoad(r *http.Request) bool {
	return r.Context().Value(http.ServerContextKey) != nil && !caddy.Exiting()
}

// isMissing reports whether an answer is that there is no such zone, store or server, while a configuration loads that may
// bring it.
func isMissing(r *http.Request, err error) bool {
	var refusal caddy.APIError
	return errors.As(err, &refusal) && refusal.HTTPStatus == http.StatusNotFound && mayLoad(r) && running.Zones.IsLoading()
}

// await waits until loading returns false. It answers 503 if that takes too long.
func await(w http.ResponseWriter, r *http.Request, loading func() bool) error {
	for end := time.Now().Add(longestLoad); loading(); {
		if time.Now().After(end) {
			w.Header().Set("Retry-After", "1")
			return refused(http.StatusServiceUnavailable, errors.New("Caddy is still loading its configuration; ask again"))
		}
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(lookAgain):
		}
	}
	return nil
}
