package breaker

// OnOpening has f run when a part opens: its failures say so already, and its requests do not know yet.
func (b *Breaker) OnOpening(f func()) { b.opening = f }
