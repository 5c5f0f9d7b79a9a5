package suggest

// simulator decides as the algorithms `zset` and `log` do: a request passes if each limit has room for it, and only
// requests that pass count.
type simulator struct {
	passed []int64
	onDeny func(ms int64) // nil: nothing has to know
}

// denied returns how many requests of a key limits deny, given their times in ms.
func (s *simulator) denied(times []int64, limits []Limit) int {
	s.passed = s.passed[:0]
	for _, t := range times {
		if s.fits(t, limits) {
			s.passed = append(s.passed, t)
		} else if s.onDeny != nil {
			s.onDeny(t)
		}
	}
	return len(times) - len(s.passed)
}

// fits reports whether all limits have room at t: of a limit n, the n-th request that passed before t has left the
// window.
func (s *simulator) fits(t int64, limits []Limit) bool {
	for _, l := range limits {
		if i := len(s.passed) - l.Limit; i >= 0 && (l.Limit == 0 || s.passed[i] > t-l.Window.Milliseconds()) {
			return false
		}
	}
	return true
}
