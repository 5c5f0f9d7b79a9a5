package topology_test

import (
	"fmt"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// A replica that takes the place of the master has the bans, takes them for known, and bans further keys.
func TestBansOverAFailover(t *testing.T) {
	t.Parallel()
	w := startWatched(t)
	store := newStore(t, w.options, timeout).Engine().(bans.Store)
	var a bans.Answer
	exchange := func(what string, ask bans.Ask) {
		t.Helper()
		caddyrun.Eventually(t, 2*patience, what, func() (ok bool) {
			answer, err := store.ExchangeBans(t.Context(), ask)
			if err == nil {
				a = answer
			}
			return err == nil
		})
	}
	set := func(n int) []bans.Write {
		return []bans.Write{{Op: bans.Set, Member: fmt.Sprintf("api %d", n), For: 3_600_000}}
	}
	exchange("a ban is set", bans.Ask{Writes: set(0)})
	follow(t, w.master, len(w.replicas))
	w.master.Kill()
	exchange("a replica has the bans", bans.Ask{Known: a.Change, Witness: "api 0"})
	if a.Lost || a.Changes != nil {
		t.Errorf("%+v, want nothing lost and nothing new", a)
	}
	exchange("a replica bans", bans.Ask{Writes: set(1)})
	if len(a.Changes) != 2 || a.Changes[0].Member != "api 0" || a.Changes[0].Record.Left(a.Now) == 0 || a.Changes[1].Member != "api 1" {
		t.Errorf("%+v, want both bans", a)
	}
}
