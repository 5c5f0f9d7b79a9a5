package owed

import "time"

// Open has the background book, which it does in rounds as long as anything is listed: one counter at first, then
// double the number each time, and one again after a failure. Few bookings are thus in flight when a store goes, and
// only for these is it unknown whether they were booked.
func (l *List[K, T]) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.begin()
}

// Close takes one Open back. Without any the background ends; see Wait.
func (l *List[K, T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wait returns when the background has ended. There must be no Open left.
func (l *List[K, T]) Wait() { l.group.Wait() }

// begin starts the background unless it runs, or has nothing to do. mu must be held.
func (l *List[K, T]) begin() {
	if !l.running && l.queue.Len() > 0 && l.open > 0 {
		l.running = true
		l.group.Go(l.run)
	}
}

// goesOn reports whether the background has something to do.
func (l *List[K, T]) goesOn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = l.queue.Len() > 0 && l.open > 0
	return l.running
}

func (l *List[K, T]) run() {
	timer := time.NewTimer(l.After)
	defer timer.Stop()
	for size := 1; l.goesOn(); {
		select {
		case <-timer.C:
		case <-l.wake:
			continue
		}
		pause := l.After
		switch booked, err := l.Book(size, time.Now()); {
		case err != nil:
			size = 1
		case booked > 0:
			size, pause = min(2*size, l.Round), l.Pause
		}
		timer.Reset(pause)
	}
}

// Rest books all that is listed, in such rounds: each counter once, until book fails or books nothing.
func (l *List[K, T]) Rest(book func(most int, due time.Time) (int, error)) {
	due := time.Now().Add(l.Again)
	for size := 1; l.Len() > 0; size = min(2*size, l.Round) {
		if n, err := book(size, due); n == 0 || err != nil {
			return
		}
	}
}
