package fakellm

import "strings"

// messages is Anthropic's API of messages.
type messages struct{}

// message returns a message. input_tokens does not include the cached tokens.
func (messages) message(a answer, output int, content []object) object {
	o := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": content, "stop_reason": nil}
	if a.usage {
		o["usage"] = object{
			"input_tokens": a.input - a.cached, "cache_creation_input_tokens": 0,
			"cache_read_input_tokens": a.cached, "output_tokens": output,
		}
	}
	return o
}

func (m messages) whole(a answer) object {
	o := m.message(a, a.output, []object{{"type": "text", "text": words(a.output)}})
	o["stop_reason"] = "end_turn"
	return o
}

func (m messages) first(a answer) []object {
	return []object{
		{"type": "message_start", "message": m.message(a, 1, []object{})},
		{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}},
		{"type": "ping"},
	}
}

func (messages) word(_ answer, n int) []object {
	return []object{{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": word(n)}}}
}

func (messages) last(a answer) ([]object, string) {
	delta := object{"type": "message_delta", "delta": object{"stop_reason": "end_turn"}}
	if a.usage {
		delta["usage"] = object{"output_tokens": a.output}
	}
	return []object{{"type": "content_block_stop", "index": 0}, delta, {"type": "message_stop"}}, ""
}

func (messages) failed(int) object {
	return object{"type": "error", "error": object{"type": "api_error", "message": "this is what was asked for"}}
}

// word returns the n-th word of a text.
func word(n int) string {
	return []string{"one ", "more ", "word ", "of ", "this ", "\"answer\"\n"}[n%6]
}

// words returns a text of n words.
func words(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(word(i))
	}
	return b.String()
}
