package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
)

// Fields are members of a request's body that say how much an answer may cost at most, as
// max_tokens does. It is immutable and may be shared.
type Fields struct {
	root   *node
	maxKey int
}

// What a scanner of a request's body calls the values, beside slotPath for the fields.
const (
	slotTimes = slots + iota // how many answers are asked for
	slotTexts                // a list of texts, each of which gets answers of its own
)

// times are the members that multiply what an answer may cost: OpenAI's API of completions has them.
var times = map[string]int{"n": slotTimes, "best_of": slotTimes, "prompt": slotTexts}

// NewFields returns Fields of names, or of paths of plain names with dots, such as
// generationConfig.maxOutputTokens.
func NewFields(paths ...string) (*Fields, error) {
	if len(paths) == 0 {
		return nil, errors.New("no field to estimate from; name one, such as max_tokens")
	}
	root := new(node)
	for _, path := range paths {
		names, rest := cutNames(path)
		if len(names) == 0 || rest != "" {
			return nil, fmt.Errorf("field %q must be a name, or names with dots between them, such as options.num_predict", path)
		}
		root.add(names, slotPath)
	}
	for name, slot := range times {
		if root.child([]byte(name), true) == nil {
			root.add([]string{name}, slot).counted = slot == slotTexts
		}
	}
	return &Fields{root: root, maxKey: 6 * root.longest()}, nil
}

// Estimate is what the body of a request says of what its answer may cost.
type Estimate struct {
	Output int64 // the largest number in the fields, for all answers together
	Times  int64 // answers that are asked for; 1 at least
	Size   int64 // bytes of the body that were read
	// Sure reports whether the body was read to its end, is one JSON text as a back end reads it, and has
	// numbers of 1 or more in the fields. If not, the answer may cost more.
	Sure bool
}

// Estimate reads what the start of the body of r says.
//
// A client must not reach a smaller estimate by a spelling that the back end reads in
// another way. Of a name that occurs twice, the largest number counts. Names match in any
// case, and with escapes. A text with a number in it is a number. The content type does
// not matter, but for gRPC, whose bodies are not JSON.
func (f *Fields) Estimate(r *http.Request, s *Start) Estimate {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := largest{times: 1}
	scan := scanner{root: f.root, fold: true, maxKey: f.maxKey, sink: &l}
	for _, piece := range s.pieces {
		scan.write(piece)
	}
	if scan.listed != nil {
		l.found(slotTexts, scan.count()) // the list goes on after the start
	}
	return Estimate{
		Output: product(l.n, l.times, max(1, l.texts)), Times: product(1, l.times, max(1, l.texts)), Size: s.size,
		Sure: l.n > 0 && !l.odd && s.whole() && scan.depth == 0 && scan.texts == 1 && isPlain(r.Header),
	}
}

// product multiplies counts, up to MaxCount.
func product(counts ...int64) int64 {
	p := 1.0
	for _, n := range counts {
		p *= float64(n)
	}
	return int64(math.Min(p, MaxCount))
}

// isPlain reports whether the fields of a request say nothing by which a back end may read another body.
func isPlain(h http.Header) bool {
	for _, field := range h["Content-Encoding"] {
		if coding(field) != "" {
			return false
		}
	}
	return h.Get("Upgrade") == "" && !strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "application/grpc")
}

// largest is the sink that keeps the largest numbers.
type largest struct {
	n, times, texts int64
	odd             bool
}

func (l *largest) found(slot int, value []byte) {
	if len(value) > 0 && value[0] == '"' {
		var text string
		_ = json.Unmarshal(value, &text) // else it is no number
		value = []byte(strings.TrimSpace(text))
	}
	n, ok := count(value)
	switch {
	case slot == slotTexts:
		l.texts = max(l.texts, n)
		return
	case slot == slotTimes && string(value) == "null":
		return
	case !ok || !isOne(value):
		l.odd = true
		return
	}
	if slot == slotTimes {
		l.times = max(l.times, n)
	} else {
		l.n = max(l.n, n)
	}
}
