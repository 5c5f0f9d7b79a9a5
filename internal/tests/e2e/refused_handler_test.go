package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

func TestRefusedHandler(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n%s\n\t}\n}\n", 6,
		`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],%s}`, []refusal{
			{"limit 5 1m", 0, ``, `unrecognized subdirective "limit" of sliding_window; it is an option of a zone: write zone <name> { limit 5 1m }`},
			{"status 429\nstatus 429", 1, ``, `status is given twice; keep one`},
			{"status 200", 0, `"status":200`, `status 200: must be from 400 to 599`},
			{"status 600", 0, `"status":600`, `status 600: must be from 400 to 599`},
			{"status -1", 0, `"status":-1`, `status -1: must be from 400 to 599`},
			{"status 0", 0, ``, `status 0: must be from 400 to 599`},
			{"status teapot", 0, ``, `status "teapot" is not a whole number`},
			{"status", 0, ``, `an argument is missing after 'status'; write status <code>; is a {$VARIABLE} empty?`},
			{"headers all", 0, `"headers":"all"`, `headers "all" is unknown; write both`},
			{"headers ietf legacy", 0, ``, `wrong argument count or unexpected line ending after 'ietf'; write headers ietf, legacy, both or none`},
			{"errors json", 0, `"errors":"json"`, `errors "json" is unknown; use one of problem, openai, anthropic`},
			{"errors openai anthropic", 0, ``, `wrong argument count or unexpected line ending after 'openai'; write errors problem, openai or anthropic`},
			{"on_error panic", 0, `"on_error":"panic"`, `on_error "panic" is unknown; use one of local, allow, deny`},
			{"on_error \"\"", 0, ``, `on_error "" is unknown; use one of local, allow, deny`},
			{"on_error allow {\nshare\n}", 1, `"on_error":"allow","share":true`, `share and on_error allow cannot be combined; write on_error local { share }, or take share out`},
			{"on_error deny {\nshare\n}", 1, `"on_error":"deny","share":true`, `share and on_error deny cannot be combined; write on_error local { share }, or take share out`},
			{"on_error local {\nshare\nshare\n}", 2, ``, `share is given twice; keep one`},
			{"on_error local {\nshare 3\n}", 1, ``, `wrong argument count or unexpected line ending after '3'; write share alone`},
			{"on_error local {\nhalve\n}", 1, ``, `unrecognized subdirective "halve" of on_error; use share`},
			{"jitter -0.1", 0, `"jitter":-0.1`, `jitter -0.1: must be from 0 to 1`},
			{"jitter 1.1", 0, `"jitter":1.1`, `jitter 1.1: must be from 0 to 1`},
			{"jitter NaN", 0, ``, `jitter NaN: must be from 0 to 1`},
			{"jitter 20%", 0, ``, `jitter "20%" is not a number; write 0.2`},
			{"log_key yes", 0, ``, `wrong argument count or unexpected line ending after 'yes'; write log_key alone`},
			{"store", 0, ``, `an argument is missing after 'store'; write store redis, or store memory; is a {$VARIABLE} empty?`},
			{"store file", 0, ``, `store "file" is unknown; use one of memory, redis`},
			{"store memory\nstore memory", 1, ``, `store is given twice; keep one`},
		})
}

func TestRefusedZoneName(t *testing.T) {
	long := strings.Repeat("n", 65)
	for _, r := range []struct{ caddyfile, json, want string }{
		{`""`, ``, `zone: name is missing`},
		{`a/b`, `a/b`, `zone "a/b": name holds '/'; use letters, digits, ., - and _`},
		{`a:b`, `a:b`, `zone "a:b": name holds ':'; use letters, digits, ., - and _`},
		{`"a b"`, `a b`, `zone "a b": name holds ' '; use letters, digits, ., - and _`},
		{`für`, `für`, `zone "für": name holds 'ü'; use letters, digits, ., - and _`},
		{`{method}`, `{http.request.method}`, `zone "{http.request.method}": name holds '{'; use letters, digits, ., - and _`},
		{long, long, `zone "` + long + `": name is longer than 64 characters`},
	} {
		_, err := adapt(t, fmt.Sprintf("http:// {\n\tsliding_window {\n\t\tzone %s {\n\t\t\tlimit 5 1m\n\t\t}\n\t}\n}\n", r.caddyfile))
		if want := template.ShortIn(r.want) + ", at Caddyfile:3"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("zone %s:\ngot  %v\nwant %s", r.caddyfile, err, want)
		}
		err = validate(t, handlerConfig(t, fmt.Sprintf(`{"handler":"sliding_window","zones":[{"name":%q,"limits":[{"max":5,"window":"1m"}]}]}`, r.json)))
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("JSON zone %s:\ngot  %v\nwant %s", r.json, err, r.want)
		}
	}
}

func TestRefusedDirective(t *testing.T) {
	for _, r := range []struct{ directive, want string }{
		{"sliding_window", `no zone: write zone <name> { ... }, at Caddyfile:2`},
		{"sliding_window {\n\t\tstatus 429\n\t}", `no zone: write zone <name> { ... }, at Caddyfile:4`},
		{"sliding_window api", `wrong number of arguments: write sliding_window <zone> <key> <limit> <window>, or zones in a block; is a {$VARIABLE} empty?, at Caddyfile:2`},
		{"sliding_window api {\n\t\tlimit 5 1m\n\t}", `wrong number of arguments: write sliding_window <zone> <key> <limit> <window>, or zones in a block: sliding_window { zone api { ... } }, at Caddyfile:3`},
		{"sliding_window api {client_ip} 5", `wrong number of arguments: write sliding_window <zone> <key> <limit> <window>, or zones in a block; is a {$VARIABLE} empty?, at Caddyfile:2`},
		{"sliding_window api {client_ip} 5 1m 1h", `wrong number of arguments: write sliding_window <zone> <key> <limit> <window>, or zones in a block, at Caddyfile:2`},
		{"sliding_window a:b {client_ip} 5 1m", `zone "a:b": name holds ':'; use letters, digits, ., - and _, at Caddyfile:2`},
		{"sliding_window api {client_ip} 5 1us", `zone api: limit 5 1us: window 1µs is not a whole number of milliseconds, at Caddyfile:2`},
		{"sliding_window api {client_ip} {vars.max} 1m", `zone api: limit {vars.max} 1m: holds a placeholder, so a fallback is required; write fallback 100 1m, or another limit, in the zone, at Caddyfile:2`},
		{`sliding_window api "" 5 1m`, `zone api: key "" is empty; write what has a quota of its own, such as {client_ip}, at Caddyfile:2`},
		{"sliding_window {\n\t\tzone\n\t}", `an argument is missing after 'zone'; write zone <name> { ... }; is a {$VARIABLE} empty?, at Caddyfile:3`},
		{"sliding_window {\n\t\tzone a b\n\t}", `wrong argument count or unexpected line ending after 'a'; write zone <name> { ... }, at Caddyfile:3`},
		{"sliding_window {\n\t\tzone api\n\t}", `zone api: limit is missing: write limit <max> <window>, or concurrent <max>, at Caddyfile:3`},
		{"sliding_window api {client_ip} 5 1m {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n\t}", `zone api: is given twice in one handler; rename one, at Caddyfile:6`},
	} {
		_, err := adapt(t, "http:// {\n\t"+r.directive+"\n}\n")
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s\ngot  %v\nwant %s", r.directive, err, r.want)
		}
	}
}

// What only JSON can say.
func TestRefusedJSON(t *testing.T) {
	for _, r := range []struct{ handler, want string }{
		{`{"handler":"sliding_window"}`, `no zone: write zone <name> { ... }`},
		{`{"handler":"sliding_window","zones":[null]}`, `zone number 1 is null; take it out`},
		{`{"handler":"sliding_window","zones":[{"limits":[{"max":5,"window":"1m"}]}]}`, `zone: name is missing`},
		{`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"window":"1m"}]}]}`, `zone api: limit: max or window is missing; write limit <max> <window>`},
		{`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":true,"window":"1m"}]}]}`, `zone api: zones[0].limits[0].max: true is neither a number nor a string; write 100`},
		{`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m","burst":5}]}]}`, `zone api: zones[0].limits[0].burst is unknown; write it in zones[0].algorithm`},
		{`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]},{"name":"api","limits":[{"max":5,"window":"1m"}]}]}`, `zone api: is given twice in one handler; rename one`},
		{`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],"store":{"module":"file"}}`, `store "file" is unknown; use one of memory, redis`},
		{`{"handler":"sliding_window","zones":[{"name":"api","match":[{"no_such_matcher":{}}],"limits":[{"max":5,"window":"1m"}]}]}`, `zone api: loading matchers`},
	} {
		if err := validate(t, handlerConfig(t, r.handler)); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s\ngot  %v\nwant %s", r.handler, err, r.want)
		}
	}
}

// What Caddy replaces in Caddyfiles is text in JSON, the same for all requests.
func TestRefusedShorthands(t *testing.T) {
	for short, long := range map[string]string{
		"header.X-Key":   "http.request.header.X-Key",
		"cookie.session": "http.request.cookie.session",
		"query.q":        "http.request.uri.query.q",
		"path.0":         "http.request.uri.path.0",
		"labels.0":       "http.request.host.labels.0",
		"re.name.1":      "http.regexp.name.1",
		"vars.tenant":    "http.vars.tenant",
		"host":           "http.request.host",
		"remote_host":    "http.request.remote.host",
		"?query":         "http.request.uri.prefixed_query",
		"file":           "http.request.uri.path.file",
	} {
		config := handlerConfig(t, fmt.Sprintf(`{"handler":"sliding_window","zones":[{"name":"api","key":"a{%s}","limits":[{"max":5,"window":"1m"}]}]}`, short))
		want := fmt.Sprintf(`zone api: key "a{%s}": {%[1]s} is no placeholder here; write {%s}`, short, long)
		if err := validate(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	// Others are placeholders, or may be.
	for _, key := range []string{
		"{client_ip}", "{http.vars.client_ip}", "{http.request.header.X-Key}", "{env.HOME}", "{system.hostname}", "{time.now.year}",
		"{http.matchers.file.type}", "{tenant}", "{header}", "{headers.X}", "{http.header.X}", `\\{host\\}`, "host", "header.X",
	} {
		config := handlerConfig(t, fmt.Sprintf(`{"handler":"sliding_window","zones":[{"name":"api","key":"%s","limits":[{"max":5,"window":"1m"}]}]}`, key))
		if err := validate(t, config); err != nil {
			t.Errorf("key %s: got %v, want no error", key, err)
		}
	}
}

func TestRefusedGlobalOption(t *testing.T) {
	for _, r := range []struct{ option, json, want string }{
		{"sliding_window redis", ``, `wrong argument count or unexpected line ending after 'redis'; write sliding_window { ... }, at Caddyfile:2`},
		{"sliding_window {\n\t\tstatus 429\n\t}", ``, `unrecognized subdirective "status" of the global option sliding_window; it is an option of the directive sliding_window: write it there, at Caddyfile:3`},
		{"sliding_window {\n\t\ton_error deny\n\t\ton_error deny\n\t}", ``, `on_error is given twice; keep one, at Caddyfile:4`},
		{"sliding_window {\n\t\ton_error never\n\t}", `{"on_error":"never"}`, `on_error "never" is unknown; use one of local, allow, deny`},
		{"sliding_window {\n\t\ton_error deny {\n\t\t\tshare\n\t\t}\n\t}", `{"on_error":"deny","share":true}`, `share and on_error deny cannot be combined; write on_error local { share }, or take share out`},
		{"sliding_window {\n\t\ton_error local {\n\t\t\tshare no\n\t\t}\n\t}", ``, `wrong argument count or unexpected line ending after 'no'; write share alone, at Caddyfile:4`},
		{"sliding_window {\n\t\tstore\n\t}", ``, `an argument is missing after 'store'; write store redis, or store memory; is a {$VARIABLE} empty?, at Caddyfile:3`},
		{"sliding_window {\n\t\tstore memory {\n\t\t\tmax_keys -1\n\t\t}\n\t}", `{"store":{"module":"memory","max_keys":-1}}`, `store memory: max_keys -1: must be from 1 to 2147483647`},
	} {
		if _, err := adapt(t, "{\n\t"+r.option+"\n}\n"); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s\ngot  %v\nwant %s", r.option, err, r.want)
		}
		if r.json == "" {
			continue
		}
		if err := validate(t, []byte(`{"apps":{"sliding_window":`+r.json+`}}`)); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("JSON %s\ngot  %v\nwant %s", r.json, err, r.want)
		}
	}
}
