// Package fakellm serves the APIs of OpenAI and Anthropic without a model: whole answers
// and streams of Server-Sent Events, with usage figures that the caller chooses. Tests and
// the documentation use it as a back end.
//
// A query sets what one answer is like:
//
//	input=19       the tokens read; default: a quarter of the bytes of the request's body
//	output=10      the tokens written, one event each in a stream; default: 20, or fewer if
//	               max_tokens and the like ask for fewer
//	cached=16      the tokens of input that were read from a cache
//	pace=50ms      the time between events
//	status=500     answer with this status and an error
//	usage=no       leave the usage out
//	abort=3        cut the connection after 3 events, or in the middle of a whole answer
//	coding=gzip    compress the answer; or zstd
//
// The body is that of the API: `stream` asks for events, and `stream_options.include_usage`
// for the usage in a stream of chat completions, which OpenAI leaves out otherwise.
package fakellm
