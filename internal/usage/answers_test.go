package usage_test

const chat = `{
  "id": "chatcmpl-1",
  "object": "chat.completion",
  "created": 1741569952,
  "model": "gpt-test",
  "choices": [{"index": 0, "message": {"role": "assistant", "content": "a \"usage\": {\"prompt_tokens\": 5} \\", "refusal": null, "annotations": []}, "logprobs": null, "finish_reason": "stop"}],
  "usage": {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0}
  },
  "service_tier": "default"
}
`

const responses = `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"In a {\"usage\""}]}],"text":{"format":{"type":"text"}},"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":4},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":123},"user":null,"metadata":{}}`

const chatStream = `: ping

data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hel"}}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"data: {\"usage\":{\"prompt_tokens\":7}}\n\n"}}],"usage":null}

data: {"id":"1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}

data: [DONE]

`

const everyStream = `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":19,"completion_tokens":1}}

data: {"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":19,"completion_tokens":2}}

data: {"choices":[{"delta":{"content":"c"}}],"usage":{"prompt_tokens":19,"completion_tokens":3}}

data: [DONE]

`

const responsesStream = `event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Hi"}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"usage":{"input_tokens":99}}],"usage":{"input_tokens":37,"output_tokens":11,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":48}}}

`

const message = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi!"}],"stop_reason":"end_turn","usage":{"input_tokens":2095,"cache_creation_input_tokens":100,"cache_read_input_tokens":900,"output_tokens":503}}`

const messageStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":8,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

`

const deltaStream = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}

event: message_delta
data: {"type":"message_delta","usage":{"output_tokens":40}}

event: message_delta
data: {"type":"message_delta","usage":{"input_tokens":472,"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

`
