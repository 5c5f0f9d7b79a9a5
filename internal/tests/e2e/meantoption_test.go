package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What people write first, or bring along from another limiter, is refused with what to
// write instead.
func TestMeantZone(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"limit 10 60", 0, `"limits":[{"max":10,"window":60}]`, `zone api: limit 10 60: window 60 has no unit; write 60s for seconds, or 60m for minutes`},
			{"limit 1m 10", 0, `"limits":[{"max":"1m","window":10}]`, `zone api: limit 1m 10: max and window are in the wrong order; write limit 10 1m`},
			{"limit 1m {http.vars.max}\nfallback 5 1m", 0, `"limits":[{"max":"1m","window":"{http.vars.max}"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit 1m {http.vars.max}: max and window are in the wrong order; write limit {http.vars.max} 1m`},
			{"limit 10 1m {client_ip}", 0, ``, `zone api: limit 10 1m {client_ip}: write limit 10 1m, and key {client_ip} in a line of its own`},
			{"limit 10r/s 1s", 0, `"limits":[{"max":"10r/s","window":"1s"}]`, `zone api: limit 10r/s 1s: "10r/s" is a rate; write limit 10 1s`},
			{"limit 10/m 1m", 0, `"limits":[{"max":"10/m","window":"1m"}]`, `zone api: limit 10/m 1m: "10/m" is a rate; write limit 10 1m`},
			{"limit 10rps 1s", 0, `"limits":[{"max":"10rps","window":"1s"}]`, `zone api: limit 10rps 1s: "10rps" is a rate; write limit 10 1s`},
			{"limit 10/ 1m", 0, ``, `zone api: limit 10/ 1m: "10/" is a rate; write limit 10 1m`},
			{"limit 0.5 1s", 0, `"limits":[{"max":0.5,"window":"1s"}]`, `zone api: limit 0.5 1s: max "0.5" is not a whole number; write limit 1 2s`},
			{"limit 1.5 1m", 0, `"limits":[{"max":1.5,"window":"1m"}]`, `zone api: limit 1.5 1m: max "1.5" is not a whole number; write limit 3 2m`},
			{"limit 10r/s", 0, ``, `zone api: limit 10r/s: write limit 10 1s`},
			{"limit 10 / 1m", 0, ``, `zone api: limit 10 / 1m: write limit 10 1m`},
			{"limit 10 per 1m", 0, ``, `zone api: limit 10 per 1m: write limit 10 1m`},
			{"limit 10 requests per minute", 0, ``, `zone api: limit 10 requests per minute: write limit 10 1m`},
			{"limit 10 1 hour", 0, ``, `zone api: limit 10 1 hour: write limit 10 1h`},
			{"limit 5 1m\nfallback 10 per 1m", 1, ``, `zone api: fallback 10 per 1m: write fallback 10 1m`},
			{"limit 1k 1m", 0, `"limits":[{"max":"1k","window":"1m"}]`, `zone api: limit 1k 1m: max "1k" is not a whole number; write 1000`},
			{"limit 1.5M 1d", 0, `"limits":[{"max":"1.5M","window":"1d"}]`, `zone api: limit 1.5M 1d: max "1.5M" is not a whole number; write 1500000`},
			{"limit 1,000 1m", 0, `"limits":[{"max":"1,000","window":"1m"}]`, `zone api: limit 1,000 1m: max "1,000" is not a whole number; write 1000`},
			{"limit 1_000 1m", 0, `"limits":[{"max":"1_000","window":"1m"}]`, `zone api: limit 1_000 1m: max "1_000" is not a whole number; write 1000`},
			{"limit 1e3 1m", 0, `"limits":[{"max":"1e3","window":"1m"}]`, `zone api: limit 1e3 1m: max "1e3" is not a whole number; write 1000`},
			{"limit 5 1m\ncost 1k", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"1k"`, `zone api: cost "1k" is not a whole number; write 1000`},
			{"limit 5 1m\nfallback 5 60", 1, `"limits":[{"max":5,"window":"1m"}],"fallback":{"max":5,"window":60}`, `zone api: fallback 5 60: window 60 has no unit; write 60s for seconds, or 60m for minutes`},
			{"limit 5 1m\nlease 5 1", 1, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5,"ttl":1}`, `zone api: lease: ttl: 1 has no unit; write 1s for seconds, or 1m for minutes`},

			{"limit 5 1min", 0, `"limits":[{"max":5,"window":"1min"}]`, `zone api: limit 5 1min: window "1min" is not a duration; write 1m`},
			{"limit 5 minute", 0, `"limits":[{"max":5,"window":"minute"}]`, `zone api: limit 5 minute: window "minute" is not a duration; write 1m`},
			{"limit 5 1M", 0, `"limits":[{"max":5,"window":"1M"}]`, `zone api: limit 5 1M: window "1M" is not a duration; write 1m for minutes, or 30d for months of 30 days`},
			{"limit 5 1mo", 0, `"limits":[{"max":5,"window":"1mo"}]`, `zone api: limit 5 1mo: window "1mo" is not a duration, as months differ in length; write 30d`},
			{"limit 5 1y", 0, `"limits":[{"max":5,"window":"1y"}]`, `zone api: limit 5 1y: window "1y" is not a duration, as years differ in length; write 365d`},
			{"limit 5 106752d", 0, `"limits":[{"max":5,"window":"106752d"}]`, `zone api: limit 5 106752d: window "106752d" is too long; 106751d is the most`},
			{"limit 5 15251w", 0, `"limits":[{"max":5,"window":"15251w"}]`, `zone api: limit 5 15251w: window "15251w" is too long; 106751d is the most`},
			{"limit 5 .w", 0, `"limits":[{"max":5,"window":".w"}]`, `zone api: limit 5 .w: window ".w" is not a duration, such as 90s, 5m or 1d`},

			{"limit 5 1m\nkey {method} {path}", 1, ``, `zone api: key {http.request.method} {http.request.uri.path}: the key is one text; write key {http.request.method}{http.request.uri.path}, or put it in quotes`},
			{"limit 5 1m\nmatch @post", 1, ``, `zone api: match @post: named matchers are not known in a zone; write match { <matchers> }, or sliding_window @post { ... }`},
			{"limit 5 1m\nmatch {\n@post\n}", 3, ``, `zone api: match @post: named matchers are not known in a zone; write match { <matchers> }, or sliding_window @post { ... }`},
			{"limit 5 1m\nmatch /login", 1, ``, `zone api: match /login: the name of the matcher is missing; write match path /login`},
			{"limit 5 1m\nmatch *", 1, ``, `zone api: match *: would match every request; name those that are meant, or take match out`},

			{"events 5", 0, ``, `zone api: unrecognized subdirective "events"; write limit 5 <window> in a zone, which takes the place of events and window`},
			{"window 1m", 0, ``, `zone api: unrecognized subdirective "window"; write limit <max> 1m in a zone, which takes the place of events and window`},
			{"distributed", 0, ``, `zone api: unrecognized subdirective "distributed"; write store redis in sliding_window, or in the global option sliding_window`},
			{"rate 10r/s", 0, ``, `zone api: unrecognized subdirective "rate"; write limit <max> <window> in a zone`},
			{"burst 20", 0, ``, `zone api: unrecognized subdirective "burst"; it is an option of an algorithm: write algorithm gcra { burst 20 } in a zone`},
			{"max_value 64", 0, ``, `zone api: unrecognized subdirective "max_value"; it is an option of an algorithm: write algorithm stream { max_value 64 } in a zone`},
			{"max_entry 512", 0, ``, `zone api: unrecognized subdirective "max_entry"; it is an option of an algorithm: write algorithm stream { max_entry 512 } in a zone`},
			{"gcra", 0, ``, `zone api: unrecognized subdirective "gcra"; it is an algorithm: write algorithm gcra in a zone`},
			{"slices 60", 0, ``, `zone api: unrecognized subdirective "slices"; it is an algorithm: write algorithm slices { count 60 } in a zone`},
			{"store redis", 0, ``, `zone api: unrecognized subdirective "store"; it is an option of sliding_window: write store outside of the zone`},
			{"status 403", 0, ``, `zone api: unrecognized subdirective "status"; it is an option of sliding_window: write status outside of the zone`},
			{"algorithm gcra burst 20", 0, ``, `zone api: algorithm gcra burst 20: options of an algorithm are in a block; write algorithm gcra { burst 20 }`},
			{"algorithm gcra 20", 0, ``, `zone api: algorithm gcra 20: options of an algorithm are in a block; write algorithm gcra { burst 20 }`},
			{"algorithm slices 60", 0, ``, `zone api: algorithm slices 60: options of an algorithm are in a block; write algorithm slices { count 60 }`},
			{"algorithm slices 1s", 0, ``, `zone api: algorithm slices 1s: options of an algorithm are in a block; write algorithm slices { size 1s }`},
			{"algorithm slices strict", 0, ``, `zone api: algorithm slices strict: options of an algorithm are in a block; write algorithm slices { strict }`},
		})
}

func TestMeantHandler(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n%s\n\t}\n}\n", 6,
		`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],%s}`, []refusal{
			{"limit 5 1m", 0, ``, `unrecognized subdirective "limit" of sliding_window; it is an option of a zone: write zone <name> { limit 5 1m }`},
			{"key {client_ip}", 0, ``, `unrecognized subdirective "key" of sliding_window; it is an option of a zone: write zone <name> { key {http.vars.client_ip} }`},
			{"burst 20", 0, ``, `unrecognized subdirective "burst" of sliding_window; it is an option of an algorithm: write algorithm gcra { burst 20 } in a zone`},
			{"events 5", 0, ``, `unrecognized subdirective "events" of sliding_window; write limit 5 <window> in a zone, which takes the place of events and window`},
			{"distributed {\nread_interval 5s\n}", 0, ``, `unrecognized subdirective "distributed" of sliding_window; write store redis in sliding_window, or in the global option sliding_window`},
			{"redis {\n}", 0, ``, `unrecognized subdirective "redis" of sliding_window; it is a store: write store redis`},

			{"store valkey", 0, `"store":{"module":"valkey"}`, `store valkey is unknown; write store redis, which works with all servers that speak the protocol of Redis`},
			{"store in-memory", 0, `"store":{"module":"in-memory"}`, `store in-memory is unknown; write store memory, or take store out`},
			{"store file", 0, `"store":{"module":"file"}`, `store "file" is unknown; use one of memory, redis`},
			{"store redis://u:secret@h", 0, `"store":{"module":"redis://u:secret@h"}`, `the name of the store is missing; write store redis <url>`},
			{"store memory {\naddress h:1\n}", 1, ``, `unrecognized subdirective "address" of store memory; write store redis, which has it`},
			{"store redis {\naddress h:6379 cluster\n}", 1, ``, `store redis: address: cluster is an option; write it on a line of its own`},
			{"store redis {\nhost h\n}", 1, ``, `unrecognized subdirective "host" of store redis; write address <host>:<port>`},
			{"store redis {\nport 6379\n}", 1, ``, `unrecognized subdirective "port" of store redis; write address <host>:<port>`},
			{"store redis {\nmaster_name m\n}", 1, ``, `unrecognized subdirective "master_name" of store redis; write master <name>`},
			{"store redis {\nmax_keys 5\n}", 1, ``, `unrecognized subdirective "max_keys" of store redis; write store memory, which has it`},
			{"store redis {\ntimeout 50\n}", 1, ``, `store redis: timeout 50 has no unit; write 50ms for milliseconds`},
			{"store redis redis://h:6379?timeout=50ms", 0, `"store":{"module":"redis","url":"redis://h:6379?timeout=50ms"}`, `store redis: url: redis: unexpected option: timeout; write timeout in the block of the store instead`},
			{"store redis redis://h:6379?dial_timeout=50ms", 0, `"store":{"module":"redis","url":"redis://h:6379?dial_timeout=50ms"}`, `store redis: url: redis: unexpected option: dial_timeout; write timeout in the block of the store instead`},
			{"store redis redis://pw@h", 0, `"store":{"module":"redis","url":"redis://pw@h"}`, `store redis: url: there is a user and no password; write redis://:<password>@<host> for a password alone, or redis://<user>:<password>@<host>`},
			{"store redis {\nusername u\n}", 2, `"store":{"module":"redis","username":"u"}`, `store redis: username: there is no password; add password <secret>, or take username out`},
			{"store redis redis://pw@h?master_name=m", 0, `"store":{"module":"redis","url":"redis://pw@h?master_name=m"}`, `store redis: url: there is a user and no password; write redis://:<password>@<host> for a password alone, or redis://<user>:<password>@<host>`},
			{"store redis {\naddress h:1\nmaster m\nsentinel_username u\n}", 4, `"store":{"module":"redis","address":["h:1"],"master":"m","sentinel_username":"u"}`, `store redis: sentinel_username: there is no password; add sentinel_password <secret>, or take sentinel_username out`},
		})
}

func TestMeantDirective(t *testing.T) {
	for args, want := range map[string]string{
		"api {client_ip} 1m 10":    "wrong arguments: write sliding_window api {client_ip} 10 1m, at Caddyfile:2",
		"api 10 1m {client_ip}":    "wrong arguments: write sliding_window api {client_ip} 10 1m, at Caddyfile:2",
		"10 1m {client_ip}":        "wrong arguments: write sliding_window <zone> {client_ip} 10 1m, at Caddyfile:2",
		"{client_ip} 10 1m":        "wrong arguments: write sliding_window <zone> {client_ip} 10 1m, at Caddyfile:2",
		"api 10 1m":                "wrong arguments: write sliding_window api {client_ip} 10 1m, at Caddyfile:2",
		"api {client_ip} 10 60":    "zone api: limit 10 60: window 60 has no unit; write 60s for seconds, or 60m for minutes, at Caddyfile:2",
		"api {client_ip} 10r/s 1s": `zone api: limit 10r/s 1s: "10r/s" is a rate; write limit 10 1s, at Caddyfile:2`,
		"api {client_ip} 0.5 1s":   `zone api: limit 0.5 1s: max "0.5" is not a whole number; write limit 1 2s, at Caddyfile:2`,
	} {
		_, err := adapt(t, "http:// {\n\tsliding_window "+args+"\n}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sliding_window %s:\ngot  %v\nwant %s", args, err, want)
		}
	}
	_, err := adapt(t, "{\n\tsliding_window {\n\t\tstatus 403\n\t}\n}\n")
	if want := `unrecognized subdirective "status" of the global option sliding_window; it is an option of the directive sliding_window: write it there, at Caddyfile:3`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("global status:\ngot  %v\nwant %s", err, want)
	}
}

// Weeks are a unit; all spellings of a window are one.
func TestWeeks(t *testing.T) {
	config, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} 5 1w\n\tsliding_window {\n\t\tzone api {\n\t\t\tkey {client_ip}\n\t\t\tlimit 5 168h\n\t\t}\n\t\tzone two {\n\t\t\tlimit 5 1.5w2d3h\n\t\t}\n\t\tzone three {\n\t\t\tlimit 5 6d\n\t\t\tlimit 6 1w\n\t\t}\n\t}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, config); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	_, err = adapt(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1w\n\t\t\tlimit 6 7d\n\t\t}\n\t}\n}\n")
	if want := "zone api: limit 6 7d: another limit has the same window"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("1w and 7d: got %v, want %s", err, want)
	}
}

// What is missing where a configuration loads is named with the place in the Caddyfile,
// also where another process has adapted it.
func TestMissingIsLocated(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLIDING_WINDOW_TEST_URL", "redis://h/first")
	t.Setenv("SLIDING_WINDOW_TEST_PORT", "none")
	for _, c := range []struct {
		store string
		line  int
		want  string
	}{
		{"redis redis://u:{env.NOT_SET}@h", 3, "url: {env.NOT_SET} has no value; set the variable in the environment of Caddy"},
		{"redis {env.SLIDING_WINDOW_TEST_URL}", 3, "url: "},
		{"redis {\naddress {env.NOT_SET}:6379\n}", 4, "address 1: {env.NOT_SET} has no value; set the variable in the environment of Caddy"},
		{"redis {\naddress h:{env.SLIDING_WINDOW_TEST_PORT}\n}", 4, `address "h:{env.SLIDING_WINDOW_TEST_PORT}": port must be from 1 to 65535`},
		{"redis {\ndb 1\npassword {env.NOT_SET}\n}", 5, "password: {env.NOT_SET} has no value; set the variable in the environment of Caddy"},
		{"redis {\ndb 1\nusername {env.NOT_SET}\npassword p\n}", 5, "username: {env.NOT_SET} has no value; set the variable in the environment of Caddy"},
		{"redis {\npassword {file./not/there}\n}", 4, "password: {file./not/there} has no value; Caddy must be able to read the file, which must not be empty"},
		{"redis {\nhash_keys {file./not/there}\n}", 4, "hash_keys 1: {file./not/there} has no value"},
		{"redis {\ntls {\nca /not/there\n}\n}", 5, "tls: ca: open /not/there: no such file or directory"},
		{"redis {\ntls {\nca " + empty + "\n}\n}", 5, "tls: ca " + empty + ": holds no certificate"},
		{"redis {\ntls {\nkey /not/there\ncert /not/there\n}\n}", 6, "tls: cert: open /not/there: no such file or directory"},
		{"redis {\ntls {\nserver_name {env.NOT_SET}\n}\n}", 5, "tls server_name: {env.NOT_SET} has no value"},
	} {
		for place, text := range map[string]string{
			"directive": "http:// {\n\tsliding_window api {client_ip} 5 1m {\n\t\tstore %s\n\t}\n}\n",
			"global":    "{\n\tsliding_window {\n\t\tstore %s\n\t}\n}\nhttp:// {\n\tsliding_window api {client_ip} 5 1m\n}\n",
		} {
			config, _, err := adaptAny(fmt.Sprintf(text, c.store))
			if err != nil {
				t.Errorf("%s: %q is refused before it loads: %v", place, c.store, err)
				continue
			}
			err = validate(t, config)
			if want := fmt.Sprintf(", at Caddyfile:%d", c.line); err == nil || !strings.Contains(err.Error(), "store redis: "+c.want) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: %q:\ngot  %v\nwant %s%s", place, c.store, err, c.want, want)
			}
		}
	}
}
