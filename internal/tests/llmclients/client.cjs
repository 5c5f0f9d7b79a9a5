// Asks a model through a client library, and prints what the program sees of it as JSON: an answer or an error, what
// the library waited in between, and how many requests it sent.
//
//	node client.cjs <directory of the libraries> <openai|anthropic> <base URL> <options as JSON>
//
// Options: retries (the library's default if left out), stream, key, max_tokens.
const { createRequire } = require('node:module');
const [, , libraries, api, baseURL, optionsText] = process.argv;
const options = JSON.parse(optionsText);
const load = createRequire(libraries + '/');

// The library sleeps by setTimeout, which node itself calls, too. What it waits is noted; a wait above 5 s is cut to
// that, so that a test ends that has found one.
const timeout = 123457; // of a request, which is no wait
const waits = [];
const wait = globalThis.setTimeout;
globalThis.setTimeout = (f, ms, ...args) => {
	if (ms === timeout || !new Error().stack.includes(libraries)) return wait(f, ms, ...args);
	waits.push(ms);
	return wait(f, Math.min(ms, 5000), ...args);
};

let requests = 0;
let last;
const settings = {
	baseURL, timeout, apiKey: options.key ?? 'a',
	fetch: async (...args) => {
		requests++;
		last = await fetch(...args);
		return last;
	},
};
if (options.retries !== undefined) settings.maxRetries = options.retries;

const messages = [{ role: 'user', content: 'hello' }];
async function ask() {
	if (api === 'openai') {
		const OpenAI = load('openai');
		const client = new OpenAI(settings);
		return client.chat.completions.create({
			model: 'm', messages, max_completion_tokens: options.max_tokens ?? 100,
			...(options.stream && { stream: true, stream_options: { include_usage: true } }),
		});
	}
	const Anthropic = load('@anthropic-ai/sdk');
	const client = new Anthropic(settings);
	return client.messages.create({ model: 'm', messages, max_tokens: options.max_tokens ?? 100, ...(options.stream && { stream: true }) });
}

(async () => {
	const seen = { events: 0 };
	try {
		const answer = await ask();
		if (options.stream) for await (const event of answer) seen.events++;
		else seen.usage = answer.usage;
	} catch (error) {
		Object.assign(seen, { error: error.constructor.name, message: error.message, type: error.type, code: error.code, status: error.status });
	}
	console.log(JSON.stringify({ ...seen, waits, requests, header: Object.fromEntries(last?.headers ?? []) }));
})();
