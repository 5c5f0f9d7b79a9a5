package slidingwindow

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint"
)

// remoteModule is implemented by modules of stores that are on servers.
type remoteModule interface {
	// LongestWait returns the longest that a request waits for the store.
	LongestWait() time.Duration
	// ClearSecrets returns the options that hold a secret in clear text.
	ClearSecrets() []string
}

// Lint implements lint.Handler. The handler is provisioned.
func (h *Handler) Lint() *lint.HandlerFacts {
	facts := &lint.HandlerFacts{ID: h.store.ID, IsRemote: h.store.IsRemote(), Share: h.Share}
	if m, ok := h.module.(remoteModule); ok {
		facts.Store = lint.StoreFacts{Timeout: m.LongestWait(), Secrets: m.ClearSecrets()}
	}
	for _, z := range h.Zones {
		text := ""
		if z.matchersJSON != nil {
			b, _ := json.Marshal(z.matchersJSON) // it was JSON
			text = string(b)
		}
		facts.Zones = append(facts.Zones, &lint.ZoneFacts{
			Settings: z.c, KeyText: cmp.Or(z.Key, template.DefaultKey), Matchers: z.matchers, MatcherText: text,
			Mistakes: z.mistakes, UnseenPaths: z.unseen, TakenOff: z.takenOff,
		})
	}
	return facts
}
