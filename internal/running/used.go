package running

import (
	"context"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Peek looks at charges: openstore.SharedStore.Peek or PeekShadow.
type Peek func(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error)

// raise is by how much a limit is raised to look above it.
const raise = 16

// Used returns how many units count under each limit of a charge on which ds were decided. A decision
// does not tell how many are above a limit that is used up, as after an answer that cost more than was
// left. A look under higher limits tells, unless the algorithm cannot have such a limit.
func (z *ActiveZone) Used(ctx context.Context, peek Peek, c *window.Charge, ds []window.Decision) []int64 {
	used := make([]int64, len(ds))
	over := false
	for i := range ds {
		used[i] = max(0, ds[i].Limit-ds[i].Remaining)
		over = over || ds[i].Remaining == 0
	}
	if window.FactsOf(c.Algorithm).Bucket {
		for i, p := range c.Policies {
			used[i] = max(used[i], inBucket(p, &ds[i]))
		}
		return used
	}
	above := *c
	above.Cost, above.Lease = 0, window.Lease{}
	above.Policies = slices.Clone(c.Policies)
	for over {
		for i := range above.Policies {
			p := &above.Policies[i]
			p.Limit = min(max(1, p.Limit)*raise, window.MaxProduct/p.Window.Milliseconds())
		}
		higher, _, _, err := peek(ctx, []window.Charge{above}, z.Configured.OnError.Local(), z.Share)
		if err != nil {
			return used
		}
		over = false
		for i, d := range higher {
			used[i] = max(used[i], d.Limit-d.Remaining)
			over = over || d.Remaining == 0 && above.Policies[i].Limit < window.MaxProduct/above.Policies[i].Window.Milliseconds()
		}
	}
	return used
}

// inBucket returns how many units are in a bucket, which runs empty evenly. The time until it is empty
// is rounded up to milliseconds.
func inBucket(p window.Policy, d *window.Decision) int64 {
	length := p.Window.Milliseconds()
	if p.Limit == 0 || d.ResetAfter.Milliseconds() > window.MaxProduct/p.Limit {
		return 0
	}
	level := max(0, d.ResetAfter.Milliseconds()*p.Limit-p.Limit+1)
	return (level + length - 1) / length
}
