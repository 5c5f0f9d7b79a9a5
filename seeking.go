package slidingwindow

import (
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// seekLast is how many whole answers of a zone may tell no cost, from the first one on, before the log
// says so.
const seekLast = 100

// seeking notices a zone with settle that never finds what it looks for.
type seeking struct {
	found  atomic.Bool
	missed atomic.Int64
}

// note notes an answer without an error, and why it did not tell its cost, if so. An answer that was cut off says nothing
// about those that are not.
func (s *seeking) note(logger *zap.Logger, z *Zone, missing usage.Reason) {
	switch {
	case s.found.Load() || missing == usage.Aborted:
	case missing == "":
		s.found.Store(true)
	case s.missed.Add(1) == seekLast:
		logger.Warn("answers of a zone with settle never tell what they cost; on_missing decides",
			zap.String("zone", z.Name), zap.Int("answers", seekLast), zap.String("last_reason", string(missing)))
	}
}
