package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// Words of other rate limiters, and slips of the pen, are refused with what to write.
func TestWordsOfOthers(t *testing.T) {
	const aZone = "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n"
	const limit = `"limits":[{"max":5,"window":"1m"}]`
	checkRefusals(t, aZone, 4, `{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
		{"limit 5 1m\ndry_run", 1, ``, `zone api: unrecognized subdirective "dry_run"; write enforce shadow in a zone`},
		{"limit 5 1m\nwhitelist 10.0.0.0/8", 1, ``, `zone api: unrecognized subdirective "whitelist"; write match { not client_ip <address> ... } in a zone`},
		{"limit 5 1m\nmessage slow", 1, ``, `zone api: unrecognized subdirective "message"; write handle_errors 429 { respond <text> } in the site`},

		{"limit 5 1m\nalgorithm token_bucket", 1, limit + `,"algorithm":{"name":"token_bucket"}`, `zone api: algorithm "token_bucket" is unknown; write gcra`},
		{"limit 5 1m\nalgorithm sliding_window", 1, limit + `,"algorithm":{"name":"sliding_window"}`, `zone api: algorithm "sliding_window" is unknown; take algorithm out: every window slides`},
		{"limit 5 1m\nalgorithm fixed_window", 1, limit + `,"algorithm":{"name":"fixed_window"}`, `zone api: algorithm "fixed_window" is unknown; slices { weighted } is the nearest, and take algorithm out for an exact limit`},
		{"limit 5 1m\nalgorithm zet", 1, limit + `,"algorithm":{"name":"zet"}`, `zone api: algorithm "zet" is unknown; write zset`},
		{"limit 5 1m\nalgorithm bloom", 1, limit + `,"algorithm":{"name":"bloom"}`, `zone api: algorithm "bloom" is unknown; use zset, log, stream, slices or gcra`},

		{"limit 5 1m\nsettle openai", 1, ``, `zone api: unrecognized subdirective "openai" of settle; write usage openai`},
		{"limit 5 1m\nempty_key allow", 1, limit + `,"empty_key":"allow"`, `zone api: empty_key "allow" is unknown; write skip`},

		{"limit unlimited 1m", 0, `"limits":[{"max":"unlimited","window":"1m"}]`, `zone api: limit unlimited 1m: max "unlimited" is not a whole number; take the limit or the zone out, or exempt one client with caddy sliding-window override set --exempt`},
		{"limit 5 1m;", 0, `"limits":[{"max":5,"window":"1m;"}]`, `zone api: limit 5 1m;: window "1m;" is not a duration; take the ; off`},
		{"limit 5; 1m", 0, `"limits":[{"max":"5;","window":"1m"}]`, `zone api: limit 5; 1m: max "5;" is not a whole number; take the ; off`},
		{"limit 5 1m\nenforce shadow;", 1, limit + `,"enforce":"shadow;"`, `zone api: enforce "shadow;" is unknown; take the ; off`},
		{"limit 5 1m\nempty_key skip;", 1, limit + `,"empty_key":"skip;"`, `zone api: empty_key "skip;" is unknown; take the ; off`},
		{"limit 5 1m\nipv4_prefix 24;", 1, ``, `zone api: ipv4_prefix "24;" is not a whole number; take the ; off`},

		{"key all\nlimit {http.request.header.X-Max} 1m\ncost 2", 1, ``, `zone api: limit {header.X-Max} 1m: holds a placeholder, so a fallback is required; write fallback 100 1m, or another limit, in the zone`},
		{"limit 5 {vars.w}", 0, ``, `zone api: limit 5 {vars.w}: holds a placeholder, so a fallback is required; write fallback 5 1m, or another limit, in the zone`},
		{"limit 5 1m\nkey {client_ip} {path}", 1, ``, `zone api: key {client_ip} {path}: the key is one text; write key {client_ip}{path}, or put it in quotes`},
		{"limit 5 1m\nkey {http.request.header.}", 1, ``, `zone api: key "{header.}": {header.} never has a value; write a name after the dot`},
		{"limit 5 1m\nkey {http.request.remote_ip}", 1, ``, `zone api: key "{http.request.remote_ip}": {http.request.remote_ip} is not a placeholder of Caddy and never has a value; write {client_ip}`},
	})
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n%s\n\t}\n}\n", 6,
		`{"handler":"sliding_window","zones":[{"name":"api",`+limit+`}],%s}`, []refusal{
			{"on_error open", 0, `"on_error":"open"`, `on_error "open" is unknown; write allow`},
			{"on_error fail_open", 0, `"on_error":"fail_open"`, `on_error "fail_open" is unknown; write allow`},
			{"on_error closed", 0, `"on_error":"closed"`, `on_error "closed" is unknown; write deny`},
			{"headers draft", 0, `"headers":"draft"`, `headers "draft" is unknown; write ietf`},
			{"headers none;", 0, `"headers":"none;"`, `headers "none;" is unknown; take the ; off`},
			{"message slow", 0, ``, `unrecognized subdirective "message" of sliding_window; write handle_errors 429 { respond <text> } in the site`},
			{"key {client_ip}", 0, ``, `unrecognized subdirective "key" of sliding_window; it is an option of a zone: write zone <name> { key {client_ip} }`},
		})
	_, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} 1m 10\n}\n")
	if want := "write sliding_window api {client_ip} 10 1m, at Caddyfile:2"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A word that is missing may be that of a variable of the environment that is not set.
func TestMissingWord(t *testing.T) {
	const hint = "; is a {$VARIABLE} empty?"
	var refusals []refusal
	for _, r := range []struct{ line, want string }{
		{"limit {$NOT_SET_FOR_TESTS} 1m", "an argument is missing after '1m'; write limit <max> <window>, such as limit 100 1m"},
		{"limit 5 {$NOT_SET_FOR_TESTS}", "an argument is missing after '5'; write limit <max> <window>, such as limit 100 1m"},
		{"cost {$NOT_SET_FOR_TESTS}", "an argument is missing after 'cost'; write cost <units>"},
		{"lease {$NOT_SET_FOR_TESTS}", "an argument is missing after 'lease'; write lease <units> [<ttl>]"},
		{"settle json {$NOT_SET_FOR_TESTS}", "an argument is missing after 'json'; write json <path>, such as json usage.total_tokens"},
	} {
		refusals = append(refusals, refusal{r.line, 0, ``, "zone api: " + r.want + hint})
	}
	for _, line := range []string{"limit 5 1m 2m", "fold_case yes", "cost 1 2"} {
		if _, err := adapt(t, fmt.Sprintf("http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\t%s\n\t\t}\n\t}\n}\n", line)); err == nil || strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v, want no word of a variable", line, err)
		}
	}
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4, ``, refusals)
	_, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} {$NOT_SET_FOR_TESTS} 1m\n}\n")
	if err == nil || !strings.Contains(err.Error(), hint[2:]) {
		t.Errorf("the line of the directive: got %v, want %s", err, hint)
	}
}

// A limit may be written as one word, as the commands have it.
func TestLimitInOneWord(t *testing.T) {
	two, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} 100 1m\n\tsliding_window {\n\t\tzone b {\n\t\t\tlimit 5 1h\n\t\t\tlimit {vars.a} 1m\n\t\t\tfallback 9 1m\n\t\t}\n\t}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	one, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} 100/1m\n\tsliding_window {\n\t\tzone b {\n\t\t\tlimit 5/1h\n\t\t\tlimit {vars.a}/1m\n\t\t\tfallback 9/1m\n\t\t}\n\t}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if string(one) != string(two) {
		t.Errorf("got %s, want %s", one, two)
	}
}

// Zones of one name that differ are named with both lines, and with what differs.
func TestZonesOfTwoSites(t *testing.T) {
	const sites = "http://a {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n\t}\n}\n\nhttp://b {\n\troute {\n\t\tsliding_window {\n\t\t\tzone api {\n\t\t\t\tlimit %s\n\t\t\t}\n\t\t%s}\n\t}\n}\n"
	_, err := adapt(t, fmt.Sprintf(sites, "6 1m", ""))
	want := `zone api: defined twice, and not the same: the other one is at Caddyfile:3, and limits differ: [{"max":5,"window":"1m"}] and [{"max":6,"window":"1m"}]; make them the same to share one counter, or rename one, at Caddyfile:12`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, c := range [][2]string{{"5 60s", ""}, {"6 1m", "\tstore redis\n\t\t"}} {
		config, err := adapt(t, fmt.Sprintf(sites, c[0], c[1]))
		if err != nil {
			t.Errorf("%s: got %v, want no error", c, err)
		} else if err := validate(t, config); err != nil {
			t.Errorf("%s: got %v, want no error", c, err)
		}
	}
}
