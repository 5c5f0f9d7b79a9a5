package memory

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Held returns the units that are held on the counter of a charge with window.Concurrent, and for how long it has held
// any, without a break.
func (s *Store) Held(charge window.Charge) (units int64, age time.Duration) {
	var room room
	accounts, locked, now := s.lock([]window.Charge{charge}, &room)
	defer s.unlock(accounts, locked)
	units, since := accounts[0].history().Held()
	if units == 0 {
		return 0, 0
	}
	return units, time.Duration(max(0, now-since)) * time.Millisecond
}
