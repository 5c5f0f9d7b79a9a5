package fakellm

// chat is OpenAI's API of chat completions.
type chat struct{}

func (chat) usage(a answer) any {
	return object{
		"prompt_tokens": a.input, "completion_tokens": a.output, "total_tokens": a.input + a.output,
		"prompt_tokens_details": object{"cached_tokens": a.cached},
	}
}

func (c chat) whole(a answer) object {
	o := object{
		"id": "chatcmpl-1", "object": "chat.completion", "model": "fake",
		"choices": []object{{"index": 0, "finish_reason": "stop", "message": object{"role": "assistant", "content": words(a.output)}}},
	}
	if a.usage {
		o["usage"] = c.usage(a)
	}
	return o
}

func (chat) chunk(choices ...object) object {
	return object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "fake", "choices": choices}
}

func (chat) first(answer) []object { return nil }

func (c chat) word(a answer, n int) []object {
	o := c.chunk(object{"index": 0, "finish_reason": nil, "delta": object{"content": word(n)}})
	if a.usage && a.includeUsage {
		o["usage"] = nil
	}
	return []object{o}
}

func (c chat) last(a answer) ([]object, string) {
	events := []object{c.chunk(object{"index": 0, "finish_reason": "stop", "delta": object{}})}
	if a.usage && a.includeUsage {
		o := c.chunk()
		o["choices"], o["usage"] = []object{}, c.usage(a)
		events = append(events, o)
	}
	return events, "[DONE]"
}

func (chat) failed(status int) object {
	return object{"error": object{"message": "this is what was asked for", "type": "server_error", "code": status}}
}

// responses is OpenAI's Responses API.
type responses struct{ chat }

func (responses) response(a answer, status string) object {
	o := object{"id": "resp_1", "object": "response", "status": status, "model": "fake", "output": []object{}, "usage": nil}
	if status == "completed" {
		o["output"] = []object{{"type": "message", "content": []object{{"type": "output_text", "text": words(a.output)}}}}
		if a.usage {
			o["usage"] = object{
				"input_tokens": a.input, "output_tokens": a.output, "total_tokens": a.input + a.output,
				"input_tokens_details": object{"cached_tokens": a.cached},
			}
		}
	}
	return o
}

func (r responses) whole(a answer) object { return r.response(a, "completed") }

func (r responses) first(a answer) []object {
	return []object{{"type": "response.created", "response": r.response(a, "in_progress")}}
}

func (responses) word(_ answer, n int) []object {
	return []object{{"type": "response.output_text.delta", "delta": word(n)}}
}

func (r responses) last(a answer) ([]object, string) {
	return []object{{"type": "response.completed", "response": r.response(a, "completed")}}, ""
}
