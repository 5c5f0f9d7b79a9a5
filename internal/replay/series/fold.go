package series

import (
	"encoding/binary"
	"slices"
)

// foldOf returns what is left of the folded times of e: how many there were, and the peak in each window. Nil: none.
func (s *Set) foldOf(e *entry) []uint32 {
	if e.fold == 0 {
		return nil
	}
	return s.folds[e.fold-1:][:1+len(s.windows)]
}

// fold folds the keys with the lowest peaks until a quarter of the times' memory is free. It reports whether it freed any.
func (s *Set) fold() bool {
	r := s.Reader()
	after := s.base + s.last - s.longest
	// The memory that folding frees, by the peak in the longest window.
	gain := map[int]int64{}
	peaks := make([]uint32, s.table.n)
	for i := range s.table.n {
		k := r.Key(i)
		peaks[i] = uint32(slices.Max(k.Peaks)) // #nosec G115 -- of requests
		if old := older(k.Times, after); old > 0 {
			gain[int(peaks[i])] += int64(len(r.bytes)) * int64(old) / int64(len(k.Times))
		}
	}
	goal := s.blocks.held / 4
	up := -1
	for _, peak := range sortedKeys(gain) {
		if goal <= 0 {
			break
		}
		goal -= gain[peak]
		up = peak
	}
	free := s.blocks.held
	for i := range s.table.n {
		if int(peaks[i]) <= up {
			s.foldKey(r, i, after)
		}
	}
	return s.blocks.held < free
}

// sortedKeys returns the keys of m in ascending order.
func sortedKeys(m map[int]int64) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// older returns how many times are not after t.
func older(times []int64, t int64) int {
	n, _ := slices.BinarySearch(times, t+1)
	return n
}

// foldKey replaces the times of the i-th key that are not after a time by its peaks so far.
func (s *Set) foldKey(r *Reader, i int, after int64) {
	k := r.Key(i)
	old := older(k.Times, after)
	if old == 0 {
		return
	}
	e := s.table.at(i)
	if e.fold == 0 {
		s.folds = append(s.folds, make([]uint32, 1+len(s.windows))...)
		e.fold = uint32(len(s.folds) - len(s.windows)) // #nosec G115 -- fewer than 2^32
	}
	f := s.foldOf(e)
	f[0] += uint32(old) // #nosec G115 -- of requests
	s.folded += int64(old)
	for j, peak := range k.Peaks {
		f[1+j] = uint32(peak) // #nosec G115 -- of requests
		s.least[j] = max(s.least[j], f[1+j])
	}
	s.blocks.release(e.first)
	last := e.time()
	e.first, e.last, e.late = 0, 0, 0
	at := s.base
	data := r.bytes[:0]
	for _, t := range k.Times[old:] {
		data = binary.AppendUvarint(data, uint64(t-at)) // #nosec G115 -- sorted
		at = t
	}
	for !s.blocks.write(e, data) { // it needs about what was released
		s.blocks.most++
	}
	if len(data) > 0 {
		e.setTime(last)
	}
}
