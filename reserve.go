package slidingwindow

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
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The reasons for which a body is not read before the decision, as metrics have them.
const (
	unreadLate   = "late"    // it did not come in usage.BodyTime, or in read_body of Caddy
	unreadBroken = "broken"  // the client ended it too early
	unreadNoRoom = "no_room" // other bodies have taken the memory
)

// reserve has the charges of zones with settle spend what the answer is thought to cost.
//
// Zones with count_if or settle hold units until the answer begins, which a client delays by not sending the body.
// So the start of the body is awaited before the units are taken, see usage.ReadStart. The body of a request whose
// keys are denied whatever it says is not read; the request keeps its cost.
//
// start is nil if nothing was read. An error answers a request whose body does not come.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, req *request) (start *usage.Start, err error) {
	var awaits *liveZone
	reads := false
	for i, z := range req.zones {
		if z.settles() && req.charges[i].Cost > 0 {
			if awaits == nil {
				awaits = z
			}
			reads = reads || z.estimates()
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
			z.Settle.reserve(r, start, c, most)
		}
	}
}

// estimates reports whether the zone reserves what bodies say.
func (z *Zone) estimates() bool { return z.Settle != nil && z.Settle.fields != nil }

// reserve makes a charge spend what the answer is thought to cost, at most what is given. start is nil for a body
// that was not read.
func (s *Settle) reserve(r *http.Request, start *usage.Start, c *window.Charge, most int64) {
	if s.fields != nil && start != nil {
		c.Cost = s.estimate(s.fields.Estimate(r, start), c.Cost)
	}
	if s.reserveMost > 0 {
		most = min(most, s.reserveMost)
	}
	c.Cost = max(1, min(c.Cost, most))
}

// estimate returns what an answer may cost at most by the body of its request. Where that does not say it for
// sure, it is otherwise at least, for each of the answers that are asked for.
func (s *Settle) estimate(e usage.Estimate, otherwise int64) int64 {
	result := usage.Result{Output: e.Output}
	if s.Usage == "" {
		result = usage.Result{Input: e.Output}
	}
	if s.perToken > 0 {
		result.Input = (e.Size + s.perToken - 1) / s.perToken
	}
	units := s.weights.Units(result)
	if e.Sure {
		return units
	}
	return max(units, min(otherwise, usage.MaxCount/e.Times)*e.Times)
}

// mostReserved returns the most that a request may reserve in any zone: the smallest limit of all zones of the
// handler that settle. So a request can pass at all, and cannot reserve all that others share with it, unless it
// may spend as much: a zone counts here also if it does not count the request, as a client may choose that.
func (h *Handler) mostReserved(req *request) int64 {
	most := int64(math.MaxInt64)
	for i, z := range req.zones {
		if z.Settle != nil {
			most = min(most, smallestOf(req.charges[i].Policies))
		}
	}
	if len(req.zones) == len(h.zones) {
		return most
	}
	return min(most, h.mostOf(func(z *liveZone) bool { return !slices.Contains(req.zones, z) }))
}

// mostBeside returns the most that a request of a zone may reserve, as far as other zones of the handler say.
func (h *Handler) mostBeside(z *liveZone) int64 {
	return h.mostOf(func(other *liveZone) bool { return other.Name != z.Name })
}

// mostOf returns the most that a request may reserve, by the configured limits of the zones with settle for which
// counts returns true.
func (h *Handler) mostOf(counts func(*liveZone) bool) int64 {
	most := int64(math.MaxInt64)
	for _, z := range h.zones {
		if z.Settle != nil && counts(z) {
			most = min(most, z.c.SmallestLimit())
		}
	}
	return most
}

// smallestOf returns the smallest limit of policies.
func smallestOf(policies []window.Policy) int64 {
	smallest := int64(math.MaxInt64)
	for _, p := range policies {
		smallest = min(smallest, p.Limit)
	}
	return smallest
}

// warnOfReservations logs zones whose cost never is reserved as another zone of the handler has a smaller limit.
func (h *Handler) warnOfReservations() {
	for _, z := range h.zones {
		for _, other := range h.zones {
			if z == other || z.Settle == nil || other.Settle == nil || z.c.Cost <= other.c.SmallestLimit() || z.c.Cost > z.c.SmallestLimit() {
				continue
			}
			h.logger.Warn("cost is above the limit of another zone of the directive with settle, and no more than that limit is reserved; lower cost, or write a sliding_window directive for each zone",
				zap.String("zone", z.Name), zap.Int64("cost", z.c.Cost), zap.String("other", other.Name), zap.Int64("limit", other.c.SmallestLimit()))
		}
	}
}

// leastCosts returns the charges of a request with the least that they cost whatever its body says.
func (req *request) leastCosts(most int64) []window.Charge {
	charges := slices.Clone(req.charges)
	for i, z := range req.zones {
		switch c := &charges[i]; {
		case c.Cost == 0 || z.Settle == nil:
		case z.estimates():
			c.Cost = 1
		default:
			z.Settle.reserve(nil, nil, c, most)
		}
	}
	return charges
}

// isDeniedAnyway reports whether a request is known to be denied whatever its body says. A remote store is not asked:
// it remembers what it has denied.
func (h *Handler) isDeniedAnyway(ctx context.Context, req *request, most int64) bool {
	ds := h.store.AnswerLocally(ctx, req.leastCosts(most), h.OnError.Local(), h.Share)
	return ds != nil && !window.Allowed(ds)
}

// rememberDenied has a remote store remember, of a request that was denied after its body was read, that no other body
// helps, if that is so. isDeniedAnyway finds it. A unit that has come free since is given back.
func (h *Handler) rememberDenied(ctx context.Context, req *request) {
	if !h.store.IsRemote() || req.place != engine.InStore {
		return
	}
	for i, z := range req.zones {
		if !z.estimates() || !slices.ContainsFunc(req.decisionsOf(i), isUsedUp) {
			continue
		}
		c := req.charges[i]
		c.Cost = 1
		if ds, err := h.store.Take(ctx, []window.Charge{c}, nil); err == nil && window.Allowed(ds) {
			_ = h.store.Raw.GiveBack(ctx, c, ds[0].At, 1) // or it counts for one window
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
func awaitBody(r *http.Request, z *liveZone, all bool) (*usage.Start, error) {
	start, err := usage.ReadStart(r, all)
	if err == nil {
		if start.NoRoom {
			z.countUnread(unreadNoRoom)
		}
		return start, nil
	}
	handlerError, tooLong := caddyhttp.HandlerError{}, (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &handlerError):
	case errors.As(err, &tooLong):
		err = caddyhttp.Error(http.StatusRequestEntityTooLarge, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		z.countUnread(unreadLate)
		return nil, caddyhttp.Error(http.StatusRequestTimeout, err)
	case r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF):
		err = caddyhttp.Error(statusClientClosed, err)
	default:
		err = caddyhttp.Error(http.StatusBadRequest, err)
	}
	z.countUnread(unreadBroken)
	return nil, err
}

func (z *liveZone) countUnread(reason string) {
	metrics.UnreadBodiesTotal.WithLabelValues(z.Name, reason).Inc()
}
