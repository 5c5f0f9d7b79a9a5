package compiled

import (
	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// besideLimits is the Tier of the limit of requests at the same time in a zone with other limits.
const besideLimits = "concurrent"

// AddConcurrent adds a limit of requests at the same time: beside the limits of the zone, which must be known, or in their
// place. The window of its policy is the lease. What is known of a limit with placeholders is its fallback.
func (z *Settings) AddConcurrent(limit LimitTemplate, untilStatus bool) {
	to := z
	if len(z.Limits) > 0 {
		to = &Settings{Name: z.Name, Key: z.Key, Tier: besideLimits}
		z.Concurrent = to
	} else {
		z.Configured.Algorithm = window.Concurrent{}.Name()
	}
	to.Algorithm, to.Limits, to.Longest = window.Concurrent{}, []LimitTemplate{limit}, limit.Known.Window
	to.Held, to.UntilStatus, to.Cost, to.Spends = true, untilStatus, 1, template.NewText("")
	if limit.Dynamic() {
		to.Fallback = limit.Known
	} else {
		to.Policies = []window.Policy{limit.Known}
		to.Quotas = answer.NewConcurrentQuotas(to.PolicyName(), to.Policies)
	}
}
