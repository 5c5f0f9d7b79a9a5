package fuzz

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
)

// FuzzCaddyfile: no directive and no global option makes the parser panic, and
// what it accepts is the same after a way through JSON.
func FuzzCaddyfile(f *testing.F) {
	for _, seed := range []string{
		"",
		"sliding_window",
		"sliding_window api {client_ip} 5 1m",
		"sliding_window {\n\tzone api {\n\t\tmatch method GET\n\t\tkey {http.request.header.X-Key}\n\t\tlimit {http.vars.max} 1m\n\t\tfallback 5 1m\n\t\tcost 2\n\t\tipv4_prefix 24\n\t\tipv6_prefix 48\n\t\tempty_key skip\n\t}\n}",
		"sliding_window {\n\tzone api {\n\t\tlimit 5 1d\n\t\talgorithm slices {\n\t\t\tsize 500ms\n\t\t\tweighted\n\t\t}\n\t}\n\tstatus 503\n\theaders both\n\tjitter 0.2\n\tlog_key\n}",
		"sliding_window {\n\tstore redis {\n\t\taddress a:1 b:1\n\t\tmaster m\n\t\tdb 1\n\t\ttls {\n\t\t\tcert c\n\t\t\tkey k\n\t\t}\n\t\ttimeout 1s\n\t}\n\ton_error deny\n}",
		"sliding_window {\n\tstore redis redis://u:p@localhost:6379/2\n}",
		"sliding_window {\n\tstore redis {\n\t\thash_keys {env.A} 0123456789abcdef\n\t}\n}",
		"sliding_window {\n\tzone api {\n\t\tkey {file.a}{http.request.body}\n\t\tlimit 5 1m\n\t\tcost 10001\n\t\tlease 9 1s\n\t}\n}",
		"sliding_window {\n\tzone api {\n\t\tlimit 5 1m\n\t\tban 10m {\n\t\t\tafter 3 in 1h\n\t\t\tfactor 1.5\n\t\t\tspread 20%\n\t\t\texcept path /a\n\t\t}\n\t}\n}",
		"sliding_window {\n\tzone api {\n\t\tconcurrent {header.X-N} {\n\t\t\tfallback 4\n\t\t\tlease 5s\n\t\t\thold status\n\t\t}\n\t\tlimit 5 1m\n\t}\n\tzone open {\n\t\tconcurrent 4\n\t}\n}",
		"sliding_window {\n\tzone api {\n\t\tlimit 5 1m\n\t\tlimit 9/1m tier 24/48\n\t\tlimit 99 1h tier 0/0\n\t}\n}",
		"sliding_window {\n\ton_error local {\n\t\tshare\n\t}\n}",
		"sliding_window {\n\tstore memory {\n\t\tmax_keys 5000\n\t}\n}",
		"sliding_window a b 9223372036854775808 -1ns {\n}",
		"sliding_window { zone a { limit 1 1s } }",
		"sliding_window {\n\tjitter NaN\n\tzone \"\"\n",
		"}\n{\n{ zone",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		tokens, err := caddyfile.Tokenize([]byte(text), "Caddyfile")
		if err != nil {
			return
		}
		parse := func(module caddyfile.Unmarshaler) bool {
			return module.UnmarshalCaddyfile(caddyfile.NewDispenser(append([]caddyfile.Token(nil), tokens...))) == nil
		}
		if h := new(slidingwindow.Handler); parse(h) {
			checkRoundTrip(t, h, new(slidingwindow.Handler))
		}
		if a := new(slidingwindow.App); parse(a) {
			checkRoundTrip(t, a, new(slidingwindow.App))
		}
	})
}

func checkRoundTrip(t *testing.T, module, again any) {
	t.Helper()
	first, err := json.Marshal(module)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.StrictUnmarshalJSON(first, again); err != nil {
		t.Fatalf("%s: %v", first, err)
	}
	second, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("got %s, want %s", second, first)
	}
}

// FuzzJSON: no JSON makes the handler panic, neither when it is loaded nor when a
// request comes, and what is loaded does not fail.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"zones":[null]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":60000000000},{"max":"100","window":"1h"}]},{"name":"b","key":"static","limits":[{"max":0,"window":"1ms"}]}]}`,
		`{"zones":[{"name":"api","key":"{client_ip}{http.request.header.X-A}","limits":[{"max":"{http.request.header.X-A}","window":"{http.request.header.X-B}"}],"fallback":{"max":5,"window":"1m"},"cost":"{http.request.header.X-B}"}]}`,
		`{"zones":[{"name":"api","match":[{"method":["GET"]}],"limits":[{"max":9007199254740992,"window":1000000}],"cost":9223372036854775807,"empty_key":"deny"}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"slices","count":"9223372036854775807","weighted":true},"ipv4_prefix":0,"ipv6_prefix":128}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"slices","size":"1ms"}}],"headers":"both","status":503,"jitter":1,"log_key":true}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],"ban":{"for":"10m","after":3,"in":"1h","factor":1e300,"spread":"20%","except":[{"path":["/a"]}]}}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],"concurrent":{"max":"{http.request.header.X-N}","fallback":4,"lease":"5s","hold":"status"}},{"name":"open","concurrent":{"max":4}}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"},{"max":9,"window":"1m","tier":"24/48"},{"max":99,"window":"1h","tier":"0/0"}],"load":{"cpu":{"lo":"1%","hi":"2%"}},"settle":{"header":"X-Units"}}]}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"2562047h"}]}],"store":{"module":"memory","max_keys":1},"on_error":"allow"}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],"on_error":"local","share":true}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],"store":{"module":"redis","url":"redis://localhost:6379/0","prefix":"{env.HOME}"}}`,
		`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],"store":{"module":"redis","hash_keys":["0123456789abcdef","{env.HOME}{env.PATH}"]}}`,
		`{"zones":[{"name":"api","limits":[{"max":-5,"window":"1.5ms"}]}]}`,
		`{"zones":[{"name":"api","limits":[{"max":1e400,"window":{}}],"algorithm":{}}]}`,
		`{"zone":{"name":"api"},"jitter":"20%","status":"429"}`,
		`{"zones":[{"name":"api","limit":"100 1m","algorithm":"log","match":{},"settle":"openai","count_if":401}]}`,
		`{"zones":[{"name":"api","limits":["100/1m",[5,"1m"],[[{}]]],"match":[{"path":"/a"},{"metod":[]}],"load":{"cpu":["70%","95%"]}}]}`,
		`{"zones":[{"name":5,"limits":{"max":5,"window":"1m"},"enforce":25,"burst":5,"fold_case":"yes","lease":[[50]]}],"store":"memory"}`,
		`{"zones":"","store":{"module":5},"on_error":{"share":true},"ſtatus":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		// It may not read whatever file it comes upon.
		if bytes.Contains(config, []byte("file")) || bytes.Contains(config, []byte("tls")) || bytes.Contains(config, []byte(`\u`)) {
			return
		}
		h, cancel, err := load(t, config)
		defer cancel()
		if err != nil || bytes.Contains(config, []byte("redis")) || bytes.Contains(config, []byte("expression")) {
			return
		}
		for _, fields := range [][2]string{{"", ""}, {"5", "1m"}, {"9007199254740992", "1ms"}, {"-1", "9223372036854775807"}} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header = http.Header{"X-A": {fields[0]}, "X-B": {fields[1]}}
			serve(t, h, r)
		}
	})
}
