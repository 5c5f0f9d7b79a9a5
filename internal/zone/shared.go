package zone

import (
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// Shared is what the handlers that use a zone have in common. It is complete once the configuration has loaded. What is
// derived from it earlier is derived again, see Joins.
type Shared struct {
	// Definition is the same for all of them.
	Definition string
	// Warned is whether likely mistakes in the zone were logged.
	Warned bool

	// Whether a handler charges for other zones as well, so that a script has to
	// decide in all of them: a counter is kept in one way.
	script bool
	// Zones of handlers that were provisioned while script was false.
	alone []*overridebook.Subscriber
	// All zones of the handlers with it, if they have others.
	peers []*Live
	// Whether the store of a handler keeps no counters of requests that are not denied.
	shadowUnsupported bool
	// When the log may say again that an option came out empty.
	noValueLog placeholders.Due
	// Whether answers tell their cost, in a zone with settle.
	seeking seeking
}

// Note notes a handler with the zone: whether the zone alone decides on its requests, and whether its store keeps counters of
// requests that are not denied.
func (u *Shared) Note(alone, shadows bool) {
	u.script, u.shadowUnsupported = u.script || !alone, u.shadowUnsupported || !shadows
}

// Join tells the zones of a handler of each other.
func Join(zones []*Live) {
	for _, z := range zones {
		if len(zones) > 1 {
			z.Shared.peers = append(z.Shared.peers, zones...)
		}
		z.most = MostOf(zones, func(other *Live) bool { return other != z })
	}
}

// Joins adds a handler's zone. It returns the zones whose overrides have to be compiled: z, and those before it
// if a server could decide on them until z came.
func (u *Shared) Joins(z *overridebook.Subscriber) []*overridebook.Subscriber {
	u.alone = append(u.alone, z)
	if !u.script {
		return u.alone[len(u.alone)-1:]
	}
	all := u.alone
	u.alone = nil
	return all
}

// CheckShadow reports why a zone cannot count without denying.
func (u *Shared) CheckShadow() error {
	if u.shadowUnsupported {
		return errors.New("the store cannot keep counters of requests that are not denied apart; write enforce on, or take another store")
	}
	return nil
}

// seekLast is how many whole answers of a zone may tell no cost, from the first one on, before the log
// says so.
const seekLast = 100

// seeking notices a zone with settle that never finds what it looks for.
type seeking struct {
	found  atomic.Bool
	missed atomic.Int64
}

// NoteTold notes an answer without an error, and why it did not tell its cost, if so. An answer that was cut off says nothing
// about those that are not.
func (z *Live) NoteTold(logger *zap.Logger, missing usage.Reason) {
	s := &z.Shared.seeking
	switch {
	case s.found.Load() || missing == usage.Aborted:
	case missing == "":
		s.found.Store(true)
	case s.missed.Add(1) == seekLast:
		logger.Warn("answers of a zone with settle never tell what they cost; on_missing decides",
			zap.String("zone", z.Name), zap.Int("answers", seekLast), zap.String("last_reason", string(missing)))
	}
}
