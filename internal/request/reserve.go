package request

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The reasons for which a body is not read before the decision, as metrics have them.
const (
	unreadLate   = "late"    // it did not come in usage.BodyTime, or in read_body of Caddy
	unreadBroken = "broken"  // the client ended it too early
	unreadNoRoom = "no_room" // other bodies have taken the memory
)

// reserve makes the charges of zones with settle spend what the answer is estimated to cost.
//
// Zones with count_if or settle hold units until the answer begins, which a client delays by not sending the body.
// So the start of the body is awaited before the units are taken, see usage.ReadStart. The body of a request whose
// keys are denied whatever it says is not read; the request keeps its cost.
//
// start is nil if nothing was read. An error answers a request whose body does not come.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, req *request) (start *usage.Start, err error) {
	var awaits *zone.Live
	reads := false
	for i, z := range req.zones {
		if z.Settles() && req.charges[i].Cost > 0 {
			if awaits == nil {
				awaits = z
			}
			reads = reads || z.Estimates()
		}
	}
	if awaits == nil {
		return nil, nil
	}
	most := h.mostReserved(req)
	if usage.HasBody(r) {
		bounded := boundBody(w, r)
		if !h.isDeniedAnyway(r.Context(), req, most) {
			if start, err = awaitBody(r, awaits, reads); err != nil {
				return nil, err
			}
			if bounded {
				_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			}
		}
	}
	req.reserve(r, start, most)
	return start, nil
}

// reserve makes the charges of zones with settle spend what the answer is thought to cost, at most what is given. start
// is nil for a body that was not read.
func (req *request) reserve(r *http.Request, start *usage.Start, most int64) {
	for i, z := range req.zones {
		if c := &req.charges[i]; z.Settle != nil && c.Cost > 0 {
			z.Settle.Reserve(r, start, c, most)
		}
	}
}

// mostReserved returns the most that a request may reserve in any zone: the smallest limit of all zones of the
// handler that settle. So a request can pass at all, and cannot reserve all that others share with it, unless it
// may spend as much: a zone counts here also if it does not count the request, as a client may choose that.
func (h *Handler) mostReserved(req *request) int64 {
	most := int64(math.MaxInt64)
	for i, z := range req.zones {
		if z.Settle != nil {
			most = min(most, zone.Smallest(req.charges[i].Policies))
		}
	}
	return min(most, zone.MostOf(h.live, func(z *zone.Live) bool { return !slices.Contains(req.zones, z) }))
}

// warnOfReservations logs zones whose cost never is reserved as another zone of the handler has a smaller limit.
func (h *Handler) warnOfReservations() {
	for _, z := range h.live {
		for _, other := range h.live {
			if z == other || z.Settle == nil || other.Settle == nil || z.Cost <= other.SmallestLimit() || z.Cost > z.SmallestLimit() {
				continue
			}
			h.Logger.Warn("cost is above the limit of another zone of the directive with settle, and no more than that limit is reserved; lower cost, or write a sliding_window directive for each zone",
				zap.String("zone", z.Name), zap.Int64("cost", z.Cost), zap.String("other", other.Name), zap.Int64("limit", other.SmallestLimit()))
		}
	}
}

// leastCosts returns the charges of a request with the least that they cost whatever its body says.
func (req *request) leastCosts(most int64) []window.Charge {
	charges := slices.Clone(req.charges)
	for i, z := range req.zones {
		switch c := &charges[i]; {
		case c.Cost == 0 || z.Settle == nil:
		case z.Estimates():
			c.Cost = 1
		default:
			z.Settle.Reserve(nil, nil, c, most)
		}
	}
	return charges
}

// isDeniedAnyway reports whether a request is known to be denied whatever its body says. A remote store is not asked:
// it remembers what it has denied.
func (h *Handler) isDeniedAnyway(ctx context.Context, req *request, most int64) bool {
	ds := h.Store.AnswerLocally(ctx, req.leastCosts(most), h.OnError.Local(), h.Share)
	return ds != nil && !window.Allowed(ds)
}

// rememberDenied makes a remote store remember, of a request that was denied after its body was read, that no other body
// helps, if that is so. isDeniedAnyway finds it. A unit that has come free since is given back.
func (h *Handler) rememberDenied(ctx context.Context, req *request) {
	if !h.Store.IsRemote() || req.origin != engine.InStore {
		return
	}
	for i, z := range req.zones {
		if !z.Estimates() || !slices.ContainsFunc(req.decisionsOf(i), isUsedUp) {
			continue
		}
		c := req.charges[i]
		c.Cost = 1
		if ds, err := h.Store.Take(ctx, []window.Charge{c}, nil); err == nil && window.Allowed(ds) {
			_ = h.Store.Raw.GiveBack(ctx, c, ds[0].At, 1) // or it counts for one window
		}
	}
}

// isUsedUp reports whether a decision leaves nothing of its limit.
func isUsedUp(d window.Decision) bool { return !d.Allowed && d.Remaining == 0 && d.Limit > 0 }

// boundBody sets a time for the body of a request, unless the operator has set one, and reports whether it has.
// The time stays for a request that is refused: the server reads what is left of its body before it answers, up
// to 256 KiB.
func boundBody(w http.ResponseWriter, r *http.Request) bool {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.ReadTimeout > 0 {
		return false
	}
	return http.NewResponseController(w).SetReadDeadline(time.Now().Add(usage.BodyTime)) == nil
}

// awaitBody reads the start of the body of a request for a zone.
func awaitBody(r *http.Request, z *zone.Live, all bool) (*usage.Start, error) {
	start, err := usage.ReadStart(r, all)
	if err == nil {
		if start.NoRoom {
			countUnread(z, unreadNoRoom)
		}
		return start, nil
	}
	handlerError, tooLong := caddyhttp.HandlerError{}, (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &handlerError):
	case errors.As(err, &tooLong):
		err = caddyhttp.Error(http.StatusRequestEntityTooLarge, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		countUnread(z, unreadLate)
		return nil, caddyhttp.Error(http.StatusRequestTimeout, err)
	case r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF):
		err = caddyhttp.Error(StatusClientClosed, err)
	default:
		err = caddyhttp.Error(http.StatusBadRequest, err)
	}
	countUnread(z, unreadBroken)
	return nil, err
}

func countUnread(z *zone.Live, reason string) {
	metrics.UnreadBodiesTotal.WithLabelValues(z.Name, reason).Inc()
}
