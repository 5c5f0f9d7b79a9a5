package leases

// EndDue ends the leases whose time is over, and returns when they are booked.
func (l *Leases) EndDue() {
	l.each(func(e *Holder) {
		if e.lease != nil && !e.lease.lives(l.Now()) {
			l.end(e)
		}
	})
	l.Wait()
}

// Wait returns when the leases that have ended are booked.
func (l *Leases) Wait() { l.ends.Wait() }

// Left returns how many units are left in leases.
func (l *Leases) Left() (units int64) {
	l.each(func(e *Holder) {
		if e.lease != nil {
			units += e.lease.left
		}
	})
	return units
}

// Debts returns on how many counters leases are not booked that have ended.
func (l *Leases) Debts() int64 { return l.debts.Len() }
