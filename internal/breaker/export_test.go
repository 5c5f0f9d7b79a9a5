package breaker

// OnOpening runs f when a part opens: its failures say so already, and its requests do not know yet.
func (b *Breaker) OnOpening(f func()) { b.opening = f }

// PartNames returns the names of the parts that have failed, and how many are failing.
func (b *Breaker) PartNames() (names []string, failing int64) {
	b.parts.Range(func(name, _ any) bool {
		names = append(names, name.(string))
		return true
	})
	return names, b.failing.Load()
}
