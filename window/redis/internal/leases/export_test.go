package leases

// Holders returns on how many counters there may be leases.
func (l *Leases) Holders() (n int) {
	l.each(func(*Holder) { n++ })
	return n
}
