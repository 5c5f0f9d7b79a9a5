package alert

import (
	"slices"
	"time"
)

// Rule says when an alert fires.
type Rule struct {
	Ratio float64 // of requests that are denied, from which on it fires, 0 to 1
	Over  time.Duration
	Least int64 // requests
}

// alertState tracks what a zone denies, second by second. It changes only in step, which is not concurrent.
type alertState struct {
	// Samples of the last Rule.Over, and the last one before it. The oldest comes first.
	samples []sample
	since   time.Time // when the alert fired; zero: it has not
	quiet   time.Time // since when there are fewer requests than Rule.Least; zero: there are enough
}

// sample is a tally at a time.
type sample struct {
	at                time.Duration // since the tally began
	refused, requests int64
}

// alertStep is what a zone denied over Rule.Over, and whether that has changed its alert.
type alertStep struct {
	fired, resolved   bool
	ratio             float64
	refused, requests int64
}

// step adds the counts of a tally that began at born. Without a rule there is no alert.
func (s *alertState) step(r *Rule, born, now time.Time, c Counted) (step alertStep) {
	if r == nil {
		step.resolved = !s.since.IsZero()
		*s = alertState{}
		return step
	}
	last := sample{now.Sub(born), c.refused(), c.requests()}
	if len(s.samples) == 0 && last.at <= r.Over {
		s.samples = append(s.samples, sample{}) // the zone is younger than the rule's time
	}
	s.samples = append(s.samples, last)
	old := 0
	for old+1 < len(s.samples) && s.samples[old+1].at <= last.at-r.Over {
		old++
	}
	s.samples = slices.Delete(s.samples, 0, old)
	step.refused = last.refused - s.samples[0].refused
	step.requests = last.requests - s.samples[0].requests
	if step.requests > 0 {
		step.ratio = float64(step.refused) / float64(step.requests)
	}
	switch {
	case step.requests >= r.Least:
		s.quiet = time.Time{}
	case s.quiet.IsZero():
		s.quiet = now
	}
	switch {
	case s.since.IsZero():
		if step.fired = step.requests >= r.Least && step.ratio >= r.Ratio; step.fired {
			s.since = now
		}
	case step.ratio <= r.Ratio/2, !s.quiet.IsZero() && now.Sub(s.quiet) >= r.Over: // also without requests
		step.resolved = true
		s.since = time.Time{}
	}
	return step
}
