package usage

// figures are the counts of one kind of object, by slot.
type figures struct {
	n   [counts]int64
	has [counts]bool
}

// set sets a count. A JSON text may have a name twice, and back ends differ in which one they mean: the
// larger counts, but for cached tokens, which make an answer cheaper.
func (f *figures) set(slot int, n int64) {
	if !f.has[slot] || n > f.n[slot] || slot == slotCached {
		f.n[slot] = n
	}
	f.has[slot] = true
}

func (f *figures) any() bool { return f.has != [counts]bool{} }

// textFigures are those of one JSON text: an answer, or an event of one.
type textFigures struct {
	outer figures // in the object itself
	inner figures // in `response` of OpenAI, or `message` of Anthropic, which events have
}

// add adds the figures of a text to those of the texts before it, of which an answer has none and a stream many.
// The larger counts, as figures of a stream are totals: who could put a text into the answer could else
// make it cheap.
func (f *figures) add(text *textFigures, stream, anthropic bool) {
	f.merge(&text.outer, stream, anthropic)
	if stream || !text.outer.any() {
		f.merge(&text.inner, stream, anthropic)
	}
}

func (f *figures) merge(g *figures, stream, anthropic bool) {
	if !anthropic { // cached tokens are some of the input, and go with it
		replaces := !f.has[slotInput] || g.n[slotInput] > f.n[slotInput] || stream && (g.n[slotInput] == f.n[slotInput] || !g.has[slotInput])
		switch {
		case !g.has[slotCached] && g.has[slotInput] && g.n[slotInput] > f.n[slotInput]:
			f.n[slotCached] = 0
		case g.has[slotCached] && replaces:
			f.n[slotCached], f.has[slotCached] = g.n[slotCached], true
		}
	}
	for slot := range g.n {
		if g.has[slot] && (anthropic || slot != slotCached) {
			f.n[slot], f.has[slot] = max(f.n[slot], g.n[slot]), true
		}
	}
}

// result returns what the figures say. A total without the rest counts as input.
func (f *figures) result(anthropic bool) Result {
	result := Result{Input: f.n[slotInput], Cached: f.n[slotCached], Output: f.n[slotOutput]}
	rest := max(0, f.n[slotTotal]-result.Input-result.Output)
	switch {
	case anthropic:
		result.Input += f.n[slotWritten] + f.n[slotCached]
	case !f.has[slotInput]:
		result.Input = rest
	case !f.has[slotOutput]:
		result.Output = rest
	}
	result.Input = min(result.Input, MaxCount)
	result.Cached = min(result.Cached, result.Input)
	return result
}
