package usage

// SetLimit sets how many bytes r reads, decoded.
func (r *Reader) SetLimit(n int64) { r.limit = n }

// BodyBytes returns what the starts of all bodies take.
func BodyBytes() int64 { return bodies.Load() }
