package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// Misspelt options are refused with the one that was probably meant, and others with all that there are.
func TestMisspelt(t *testing.T) {
	const zone = "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n"
	checkRefusals(t, zone, 4, ``, []refusal{
		{"limt 5 1m", 0, ``, `zone api: unrecognized subdirective "limt"; write limit`},
		{"limits 5 1m", 0, ``, `zone api: unrecognized subdirective "limits"; write limit`},
		{"Limit 5 1m", 0, ``, `zone api: unrecognized subdirective "Limit"; write limit`},
		{"limit 5 1m\nsettel usage openai", 1, ``, `zone api: unrecognized subdirective "settel"; write settle`},
		{"limit 5 1m\ntop-talkers", 1, ``, `zone api: unrecognized subdirective "top-talkers"; write top_talkers`},
		{"limit 5 1m\ncolour red", 1, ``, `zone api: unrecognized subdirective "colour"; use match, key, limit, fallback, pack, algorithm, cost, lease, concurrent, enforce, count_if, settle, load, alert, ban, ipv4_prefix, ipv6_prefix, fold_case, empty_key or top_talkers`},
		{"limit 5 1m\nload {\ncpus 70% 95%\n}", 2, ``, `zone api: unrecognized subdirective "cpus" of load; write cpu`},
		{"limit 5 1m\nsettle {\nusage openai\non_mising keep\n}", 3, ``, `zone api: unrecognized subdirective "on_mising" of settle; write on_missing`},
		{"limit 5 1m\nalert {\ndeny 10%\n}", 2, ``, `zone api: unrecognized subdirective "deny" of alert; use denied, over or min`},
		{"limit 5 1m\nalgorithm slices {\nsiez 5s\n}", 2, ``, `zone api: unrecognized subdirective "siez" of algorithm slices; write size`},
		{"limit 5 1m\nalgorithm slices {\nwidth 5s\n}", 2, ``, `zone api: unrecognized subdirective "width" of algorithm slices; use count, size, strict, weighted, layers or adaptive`},
		{"limit 5 1m\nalgorithm zset {\nwidth 5s\n}", 2, ``, `zone api: unrecognized subdirective "width" of algorithm zset, which has none; take it out`},
		{"limit 5 1m\nmatch {\nmetod GET\n}", 3, ``, `zone api: match: unrecognized matcher "metod"; write method`},
		{"limit 5 1m {\nkey all\n}", 0, ``, `zone api: limit has no block; take out { and what belongs to it`},
		{"limit 5 1m\ntop_talkers {\n}", 1, ``, `zone api: top_talkers has no block; take out { and what belongs to it`},
		{"limit 5 1m\nalgorithm slices {\ncount 5 {\n}\n}", 2, ``, `zone api: count has no block; take out { and what belongs to it`},
		{"limit 5 1m\nsettle {\nusage openai {\n}\n}", 2, ``, `zone api: usage has no block; take out { and what belongs to it`},
	})
	const handler = "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n%s\n\t}\n}\n"
	checkRefusals(t, handler, 6, ``, []refusal{
		{"statsu 429", 0, ``, `unrecognized subdirective "statsu" of sliding_window; write status`},
		{"colour red", 0, ``, `unrecognized subdirective "colour" of sliding_window; use zone, store, on_error, status, headers, errors, jitter or log_key`},
		{"on_error local {\nshared\n}", 1, ``, `unrecognized subdirective "shared" of on_error; write share`},
		{"store memory {\nmax_key 5\n}", 1, ``, `unrecognized subdirective "max_key" of store memory; write max_keys`},
		{"store redis {\naddres localhost:6379\n}", 1, ``, `unrecognized subdirective "addres" of store redis; write address`},
		{"store redis {\ndb 3 {\n}\n}", 1, ``, `db has no block; take out { and what belongs to it`},
		{"store redis {\ntls {\nservername x\n}\n}", 2, ``, `unrecognized subdirective "servername" of store redis tls; write server_name`},
		{"store redis {\ntls {\nverify\n}\n}", 2, ``, `unrecognized subdirective "verify" of store redis tls; use ca, cert, key, server_name or insecure_skip_verify`},
	})
	checkRefusals(t, "{\n\tsliding_window {\n%s\n\t}\n}\n", 3, ``, []refusal{
		{"onerror deny", 0, ``, `unrecognized subdirective "onerror" of the global option sliding_window; write on_error`},
		{"colour red", 0, ``, `unrecognized subdirective "colour" of the global option sliding_window; use store or on_error`},
	})
}

// Each option with a wrong number of words is refused with how it is written.
func TestSyntaxOfEachOption(t *testing.T) {
	const zone = "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\t%s\n\t\t}\n\t}\n}\n"
	_, err := adapt(t, fmt.Sprintf(zone, "colour red"))
	_, list, _ := strings.Cut(fmt.Sprint(err), "; use ")
	list, _, _ = strings.Cut(list, ", at ")
	options := strings.Split(strings.Replace(list, " or ", ", ", 1), ", ")
	if len(options) < 10 {
		t.Fatalf("got the options %q from %v", options, err)
	}
	for _, option := range options {
		switch option {
		case "match", "count_if", "settle", "load", "alert":
			continue // their words are options
		}
		_, err := adapt(t, fmt.Sprintf(zone, option+" a b c d e f g"))
		if !strings.Contains(fmt.Sprint(err), "; write "+option+" ") {
			t.Errorf("%s: got %v, want how it is written", option, err)
		}
	}
}

// Empty words, as of variables of the environment that are not set, are not taken for the default.
func TestEmptyWords(t *testing.T) {
	var refusals []refusal
	for _, option := range []string{`cost`, `lease 5`, `pack`, `algorithm`} {
		name, _, _ := strings.Cut(option, " ")
		refusals = append(refusals, refusal{"limit 5 1m\n" + option + ` ""`, 1, ``, `zone api: ` + name + ` "": the value is empty; write one, or take the line out`})
	}
	for block, options := range map[string][]string{
		"algorithm slices {":    {"count", "size"},
		"algorithm gcra {":      {"burst", "native"},
		"algorithm stream {":    {"keep", "max_value", "max_entry", "fields a"},
		"load cpu 70% 95% {":    {"floor", "ceiling", "recover"},
		"settle usage openai {": {"on_missing", "on_abort", "max", "header", "json"},
	} {
		for _, option := range options {
			name, _, _ := strings.Cut(option, " ")
			refusals = append(refusals, refusal{
				"limit 5 1m\n" + block + "\n" + option + ` ""` + "\n}", 2, ``,
				`zone api: ` + name + ` "": the value is empty; write one, or take the line out`,
			})
		}
	}
	refusals = append(refusals,
		refusal{"limit 5 1m\nalert denied 20%", 1, ``, `zone api: alert has no arguments; write alert { denied 20% }`},
		refusal{"limit 5 1m\nalert 20%", 1, ``, `zone api: alert has no arguments; write alert { denied 20% }`},
		refusal{"limit 5 1m\nalert \"\"", 1, ``, `zone api: alert has no arguments; write alert { denied 10% }`},
	)
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4, ``, refusals)
}

// What can only be a mistake is refused, however it is written.
func TestCanOnlyBeAMistake(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"limit {} 1m\nfallback 5 1m", 0, `"limits":[{"max":"{}","window":"1m"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit max "{}": {} names no placeholder; write its name, or \{\} for braces`},
			{`limit "" 1m`, 0, `"limits":[{"max":"","window":"1m"}]`, `zone api: limit: max or window is missing; write limit <max> <window>`},
			{`limit 5 ""`, 0, `"limits":[{"max":5}]`, `zone api: limit: max or window is missing; write limit <max> <window>`},
			{"limit 5 1m\nkey a{}b", 1, `"limits":[{"max":5,"window":"1m"}],"key":"a{}b"`, `zone api: key "a{}b": {} names no placeholder; write its name, or \{\} for braces`},
			{"limit 5 1m\nkey {http.request.uuid}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{http.request.uuid}"`, `zone api: key "{http.request.uuid}": {http.request.uuid} differs for each request, so that no limit would be reached; use what a client has in common, such as {client_ip}`},
			{"limit 5 1m\nkey {http.response.size}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{http.response.size}"`, `zone api: key "{http.response.size}": {http.response.size} has a value only once the request is over; take it out`},
			{"limit 5 1m\ncost {http.response.duration_ms}", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"{http.response.duration_ms}"`, `zone api: cost "{http.response.duration_ms}": {http.response.duration_ms} has a value only once the request is over; take it out`},
			{"limit 5 1m\nkey {header.}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{http.request.header.}"`, `zone api: key "{http.request.header.}": {http.request.header.} never has a value; write a name after the dot`},
			{"limit {vars.} 1m\nfallback 5 1m", 0, `"limits":[{"max":"{http.vars.}","window":"1m"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit max "{http.vars.}": {http.vars.} never has a value; write a name after the dot`},
			{"limit 5 1m\nkey {args[0]}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{args[0]}"`, `zone api: key "{args[0]}": {args[0]} has a value in a snippet only; write one after import <snippet>, or take the placeholder out`},
			{"limit 5 1m\ncost {blocks.cost}", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"{blocks.cost}"`, `zone api: cost "{blocks.cost}": {blocks.cost} has a value in a snippet only; write one after import <snippet>, or take the placeholder out`},
			{"limit 5 1m\nmatch not", 1, `"limits":[{"max":5,"window":"1m"}],"match":[{"not":[{}]}]`, `zone api: match not: there is nothing to match; write what, or take match out`},
			{"limit 5 1m\nmatch remote_ip", 1, `"limits":[{"max":5,"window":"1m"}],"match":[{"remote_ip":{}}]`, `zone api: match remote_ip: there is nothing to match; write what, or take match out`},
			{"limit 5 1m\nmatch path", 1, `"limits":[{"max":5,"window":"1m"}],"match":[{"path":null}]`, `zone api: match path: there is nothing to match; write what, or take match out`},
			{"limit 5 1m\nmatch {\nmethod\n}", 3, `"limits":[{"max":5,"window":"1m"}],"match":[{"method":[]}]`, `zone api: match method: there is nothing to match; write what, or take match out`},
			{"limit 5 1m\ncount_if header \"\" a", 1, `"limits":[{"max":5,"window":"1m"}],"count_if":{"headers":{"":["a"]}}`, `zone api: count_if: header: the name of the field is empty; write header <field> <value>`},
			{"limit 5 1m\ncount_if status 4xx,5xx", 1, ``, `zone api: count_if: write status <code>... or header <field> <value>: bad status value '4xx,5xx': strconv.Atoi: parsing "4xx,5xx": invalid syntax`},
			{"limit 5 1m\nsettle {\nusage openai\nrefund_if path /x\n}", 3, ``, `zone api: refund_if: write status <code>... or header <field> <value>: unrecognized response matcher path`},
			{"limit 5 1m\nsettle json $.usage.total", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"$.usage.total"}`, `zone api: settle: json path "$.usage.total" is a JSONPath; write it without $, such as usage.total_tokens`},
			{"limit 5 1m\nsettle json usage..total", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"usage..total"}`, `zone api: settle: json path "usage..total" has a name that is empty; write names with one dot between them, such as usage.total_tokens`},
			{"limit 5 1m\nsettle json usage.total.", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"usage.total."}`, `zone api: settle: json path "usage.total." has a name that is empty; write names with one dot between them, such as usage.total_tokens`},
		})
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n\t\t}\n%s\n\t}\n}\n", 6, ``, []refusal{
		{"jitter 20%", 0, ``, `jitter "20%" is not a number; write 0.2`},
	})
}

// What is most likely a mistake in limits is a warning: overrides give some keys other ones.
func TestDoubtfulLimits(t *testing.T) {
	for _, c := range []struct{ zone, want string }{
		{`"limits":[{"max":5,"window":"1m"}],"fallback":{"max":5,"window":"1h"}`, `"msg":"fallback is never used: no limit has a placeholder; take fallback out","zone":"api"`},
		{`"limits":[{"max":50,"window":"1m"},{"max":5,"window":"1s"}],"cost":6`, `"msg":"cost is above the limit, so that no request passes; raise the limit, or lower cost","zone":"api","cost":6,"limit":"5 1s"`},
		{`"limits":[{"max":0,"window":"1m"}],"cost":6`, ``},
		{`"limits":[{"max":900,"window":"1m"}],"cost":60,"settle":{"usage":"openai"}},{"name":"small","limits":[{"max":50,"window":"1s"}],"settle":{"usage":"openai"}`,
			`"msg":"cost is above the limit of another zone of the directive with settle, and no more than that limit is reserved; lower cost, or write a sliding_window directive for each zone","zone":"api","cost":60,"other":"small","limit":50`},
		{`"limits":[{"max":5,"window":"1m"}],"cost":6,"settle":{"usage":"openai"}`, ``},
		{`"limits":[{"max":5,"window":"1m"}],"ban":{"for":"10m"}`, `"msg":"a ban of an address is one of all who share it, as in an office or behind a mobile network; count what only an attacker does with count_if, or write a key that tells persons apart","zone":"api"`},
		{`"limits":[{"max":5,"window":"1m"}],"ban":{"for":"10m"},"count_if":{"status_code":[401]}`, ``},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		wantWarnings(t, warned(t, handlerConfig(t, `{"handler":"sliding_window","zones":[{"name":"api",`+c.zone+`}]}`)), want...)
	}
}
