package usage

// SetLimit sets how many bytes r reads, decoded.
func (r *Reader) SetLimit(n int64) { r.limit = n }
