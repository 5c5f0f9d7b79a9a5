package usage

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// What a scanner calls the values of a Source.
const (
	slotInput   = iota + 1 // tokens read
	slotWritten            // tokens read and written to a cache, not in slotInput
	slotCached             // tokens read from a cache
	slotOutput             // tokens written
	slotTotal              // tokens read and written
	counts

	slotInner = counts        // is added to a count inside of another object
	slotType  = counts + iota // the type of an event
	slotPath                  // the number, or the value that holds it
	slots
)

// Source names what to look for in answers. It is immutable and may be shared.
type Source struct {
	root   *node
	maxKey int
	rest   string // of the path, inside the value of slotPath

	// The rules of Anthropic: cached tokens are not in slotInput, and a stream without an
	// event of totals is not whole.
	anthropic bool
}

// OpenAI returns the Source of answers like those of OpenAI: usage.prompt_tokens and
// usage.completion_tokens of chat, completions and embeddings; usage.input_tokens and
// usage.output_tokens of the Responses API, and both in `response` of its events; of
// usage.total_tokens, what the other two leave out. Input includes the tokens read from a
// cache, as the fields do.
func OpenAI() *Source {
	root := new(node)
	root.addCounts("response", map[string]int{
		"prompt_tokens": slotInput, "prompt_tokens_details.cached_tokens": slotCached,
		"input_tokens": slotInput, "input_tokens_details.cached_tokens": slotCached,
		"completion_tokens": slotOutput, "output_tokens": slotOutput, "total_tokens": slotTotal,
	})
	return &Source{root: root, maxKey: 6 * root.longest()}
}

// addCounts adds the paths of counts in `usage`, and in `usage` of the object that events have.
func (n *node) addCounts(object string, paths map[string]int) {
	for path, slot := range paths {
		names := append([]string{object, "usage"}, strings.Split(path, ".")...)
		n.add(names[1:], slot)
		n.add(names, slot+slotInner)
	}
	n.add([]string{"type"}, slotType)
}

// Anthropic returns the Source of answers like those of Anthropic: usage.input_tokens,
// usage.output_tokens and the two cache fields, and all of them in `message` of the event
// message_start. Input is the sum of input_tokens, cache_creation_input_tokens and
// cache_read_input_tokens: Anthropic counts them apart, but the model reads them all, and
// Input then means the same as for OpenAI.
//
// Events have totals, of which the largest counts: some servers send the input in
// message_start only, and 0 in message_delta.
func Anthropic() *Source {
	root := new(node)
	root.addCounts("message", map[string]int{
		"input_tokens": slotInput, "cache_creation_input_tokens": slotWritten,
		"cache_read_input_tokens": slotCached, "output_tokens": slotOutput,
	})
	return &Source{root: root, maxKey: 6 * root.longest(), anthropic: true}
}

// Path returns the Source of a number at a path in the syntax of gjson. The number counts
// as Input. The last one in the answer wins. The path must begin with a plain name. Names
// up to the first element of another kind (a position in an array, a wildcard, a query)
// are followed while the answer passes. The value there, of at most 64 KiB, is then read
// by gjson.
func Path(path string) (*Source, error) {
	names, rest := cutNames(path)
	switch {
	case path == "$" || strings.HasPrefix(path, "$.") || strings.HasPrefix(path, "$["):
		return nil, fmt.Errorf("json path %q is a JSONPath; write it without $, such as usage.total_tokens", path)
	case len(names) > 0 && (strings.HasPrefix(rest, ".") || strings.HasSuffix(rest, ".")):
		return nil, fmt.Errorf("json path %q has a name that is empty; write names with one dot between them, such as usage.total_tokens", path)
	case len(names) == 0:
		return nil, fmt.Errorf("json path %q must begin with a plain name, such as usage.total_tokens", path)
	}
	root := new(node)
	last := root.add(names, slotPath)
	last.raw = rest != ""
	return &Source{root: root, maxKey: 6 * root.longest(), rest: rest}, nil
}

// cutNames cuts the plain names from the beginning of a path.
func cutNames(path string) (names []string, rest string) {
	for path != "" {
		name, after, more := strings.Cut(path, ".")
		if !isName(name) || more && after == "" {
			break
		}
		names, path = append(names, name), after
	}
	return names, path
}

// isName reports whether an element of a path is the name of a member of an object, and
// nothing else. A number may be a position in an array.
func isName(name string) bool {
	digits := true
	for _, c := range name {
		if c < '0' || c > '9' {
			digits = false
		}
		if c <= ' ' || strings.ContainsRune("*?#@|\\!{}[]()<>=%\"':,~", c) {
			return false
		}
	}
	return !digits
}

// read returns the number in a value that slotPath holds.
func (s *Source) read(value []byte) (int64, bool) {
	if s.rest == "" {
		return count(value)
	}
	if !gjson.ValidBytes(value) {
		return 0, false
	}
	result := gjson.GetBytes(value, s.rest)
	if result.Type != gjson.Number {
		return 0, false
	}
	return count([]byte(result.Raw))
}
