package slidingwindow

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The words for which fields an answer gets.
const (
	fieldsIETF   = "ietf"
	fieldsLegacy = "legacy"
	fieldsBoth   = "both"
	fieldsNone   = "none"
)

// setFields tells the client what is left, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11, in the legacy X-RateLimit fields, or in both.
//
// The legacy fields name no window: X-RateLimit-Limit is what may pass at once.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.Headers == fieldsIETF || h.Headers == fieldsBoth {
		req.announce(header)
	}
	if h.Headers == fieldsLegacy || h.Headers == fieldsBoth {
		d := req.tightest()
		header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Limit, 10)}
		header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
		header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(seconds(d.ResetAfter), 10)}
	}
}

// retryAfter returns the value of Retry-After: whole seconds, rounded up, at
// least 1, later by a random share of up to jitter. It is 0 if waiting cannot
// help.
func (h *Handler) retryAfter(wait time.Duration) int64 {
	if wait == window.Never {
		return 0
	}
	extra := time.Duration(rand.Float64() * h.Jitter * float64(wait)) //nolint:gosec // spreads load, keeps no secret
	return max(1, seconds(wait+min(extra, window.Never-wait)))
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
