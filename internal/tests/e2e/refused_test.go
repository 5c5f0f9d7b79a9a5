package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// refusal is a mistake, in both languages.
type refusal struct {
	caddyfile string // the lines of a block
	line      int    // which of them is at fault
	json      string // the same as members of an object; empty if JSON cannot say it
	want      string // how the error begins, place apart
}

// checkRefusals puts each mistake in place of %s. The first line of a block is
// at line from.
func checkRefusals(t *testing.T, caddyfile string, from int, jsonHandler string, refusals []refusal) {
	t.Helper()
	for _, r := range refusals {
		text := fmt.Sprintf(caddyfile, r.caddyfile)
		want := fmt.Sprintf("%s, at Caddyfile:%d", template.ShortIn(r.want), from+r.line)
		_, err := adapt(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Caddyfile %q:\ngot  %v\nwant %s", r.caddyfile, err, want)
		}
		if r.json == "" {
			continue
		}
		err = validate(t, handlerConfig(t, fmt.Sprintf(jsonHandler, r.json)))
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("JSON %s:\ngot  %v\nwant %s", r.json, err, r.want)
		}
	}
}

// handlerConfig is a configuration whose only handler is that.
func handlerConfig(t *testing.T, handlers ...string) []byte {
	t.Helper()
	config := `{"apps":{"http":{"servers":{"s":{"listen":[":80"],"routes":[{"handle":[` + strings.Join(handlers, ",") + `]}]}}}}}`
	if !json.Valid([]byte(config)) {
		t.Fatalf("not JSON: %s", config)
	}
	return []byte(config)
}

func TestRefusedZone(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"burst 5", 0, ``, `zone api: unrecognized subdirective "burst"; it is an option of an algorithm: write algorithm gcra { burst 5 } in a zone`},
			{"limit 5 1m\nkey a\nkey b", 2, ``, `zone api: key is given twice; keep one`},
			{"limit 5 1m\ncost 1\ncost 1", 2, ``, `zone api: cost is given twice; keep one`},
			{"limit 5 1m\nfold_case\nfold_case", 2, ``, `zone api: fold_case is given twice; keep one`},
			{"fold_case off", 0, ``, `zone api: wrong argument count or unexpected line ending after 'off'; write fold_case alone`},
			{"key a", 1, `"key":"a"`, `zone api: limit is missing: write limit <max> <window>, or concurrent <max>`},
			{"key a b", 0, ``, `zone api: wrong argument count or unexpected line ending after 'a'; write key <text>, in quotes if it holds spaces`},

			{"limit -5 1m", 0, `"limits":[{"max":-5,"window":"1m"}]`, `zone api: limit -5 1m: limit -5 is negative; use 0 to deny everything`},
			{"limit many 1m", 0, `"limits":[{"max":"many","window":"1m"}]`, `zone api: limit many 1m: max "many" is not a whole number`},
			{"limit 1.5 1m", 0, `"limits":[{"max":1.5,"window":"1m"}]`, `zone api: limit 1.5 1m: max "1.5" is not a whole number; write limit 3 2m`},
			{"limit 9223372036854775808 1m", 0, `"limits":[{"max":"9223372036854775808","window":"1m"}]`, `zone api: limit 9223372036854775808 1m: max "9223372036854775808" is above 9223372036854775807`},
			{"limit 1 1m\nlimit -5 1m", 1, `"limits":[{"max":1,"window":"1m"},{"max":-5,"window":"1m"}]`, `zone api: limit -5 1m: limit -5 is negative; use 0 to deny everything`},
			{"limit 10 1m\nlimit 5 60s", 1, `"limits":[{"max":10,"window":"1m"},{"max":5,"window":"60s"}]`, `zone api: limit 5 60s: another limit has the same window; keep the smaller one`},
			{"limit 5", 0, ``, `zone api: an argument is missing after '5'; write limit <max> <window>, such as limit 100 1m; is a {$VARIABLE} empty?`},
			{"limit 5 1m 1h", 0, ``, `zone api: wrong argument count or unexpected line ending after '1m'; write limit <max> <window>, such as limit 100 1m`},
			{"limit 5 0s", 0, `"limits":[{"max":5,"window":"0s"}]`, `zone api: limit 5 0s: window 0s: must be greater than 0`},
			{"limit 5 0", 0, `"limits":[{"max":5,"window":0}]`, `zone api: limit 5 0: window 0s: must be greater than 0`},
			{"limit 5 -1m", 0, `"limits":[{"max":5,"window":"-1m"}]`, `zone api: limit 5 -1m: window -1m0s: must be greater than 0`},
			{"limit 5 10us", 0, `"limits":[{"max":5,"window":"10us"}]`, `zone api: limit 5 10us: window 10µs is not a whole number of milliseconds`},
			{"limit 5 1.5ms", 0, `"limits":[{"max":5,"window":1500000}]`, `window 1.5ms is not a whole number of milliseconds`},
			{"limit 5 60", 0, `"limits":[{"max":5,"window":60}]`, `zone api: limit 5 60: window 60 has no unit; write 60s for seconds, or 60m for minutes`},
			{"limit 5 soon", 0, `"limits":[{"max":5,"window":"soon"}]`, `zone api: limit 5 soon: window "soon" is not a duration, such as 90s, 5m or 1d`},
			{"limit 5 1000000d", 0, `"limits":[{"max":5,"window":"1000000d"}]`, `zone api: limit 5 1000000d: window "1000000d" is too long; 106751d is the most`},
			{"limit 9007199254740994 1ms", 0, `"limits":[{"max":9007199254740994,"window":"1ms"}]`, `zone api: limit 9007199254740994 1ms: limit 9007199254740994 × window 1ms is too large: limit × milliseconds must not exceed 2^53`},
			{"limit 104249991374 1d", 0, `"limits":[{"max":104249991374,"window":"1d"}]`, `zone api: limit 104249991374 1d: limit 104249991374 × window 24h0m0s is too large: limit × milliseconds must not exceed 2^53`},

			{"limit {http.vars.max} 1m", 0, `"limits":[{"max":"{http.vars.max}","window":"1m"}]`, `zone api: limit {http.vars.max} 1m: holds a placeholder, so a fallback is required; write fallback 100 1m, or another limit, in the zone`},
			{"limit 5 {http.vars.w}", 0, `"limits":[{"max":5,"window":"{http.vars.w}"}]`, `zone api: limit 5 {http.vars.w}: holds a placeholder, so a fallback is required; write fallback 5 1m, or another limit, in the zone`},
			{"fallback 5 1m\nlimit {http.vars.max} 0s", 1, `"limits":[{"max":"{http.vars.max}","window":"0s"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit {http.vars.max} 0s: window 0s: must be greater than 0`},
			{"limit 5 1m\nfallback {http.vars.max} 1m", 1, `"limits":[{"max":5,"window":"1m"}],"fallback":{"max":"{http.vars.max}","window":"1m"}`, `zone api: fallback {http.vars.max} 1m: must not hold a placeholder`},
			{"limit 5 1m\nfallback -1 1m", 1, `"limits":[{"max":5,"window":"1m"}],"fallback":{"max":-1,"window":"1m"}`, `zone api: fallback -1 1m: limit -1 is negative; use 0 to deny everything`},
			{"limit 5 1m\nfallback 5", 1, ``, `zone api: an argument is missing after '5'; write fallback <max> <window>, such as fallback 100 1m; is a {$VARIABLE} empty?`},

			{"limit 5 1m\ncost -1", 1, `"limits":[{"max":5,"window":"1m"}],"cost":-1`, `zone api: cost -1 is negative; use 0 to look without spending`},
			{"limit 5 1m\ncost free", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"free"`, `zone api: cost "free" is not a whole number`},
			{"limit 5 1m\ncost 0.5", 1, `"limits":[{"max":5,"window":"1m"}],"cost":0.5`, `zone api: cost "0.5" is not a whole number`},
			{"limit 5 1m\nkey {header.X-Key", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{header.X-Key"`, `zone api: key "{header.X-Key": a placeholder does not end; write }, or \{ for a brace`},
			{"limit 5 1m\nkey {client_ip}{", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{client_ip}{"`, `a placeholder does not end; write }, or \{ for a brace`},
			{"limit {header.X-Max 1m\nfallback 5 1m", 0, `"limits":[{"max":"{header.X-Max","window":"1m"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit max "{header.X-Max": a placeholder does not end; write }, or \{ for a brace`},
			{"limit 5 {header.X-W\nfallback 5 1m", 0, `"limits":[{"max":5,"window":"{header.X-W"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit window "{header.X-W": a placeholder does not end; write }, or \{ for a brace`},
			{"limit 5 1m\ncost {header.X-Cost", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"{header.X-Cost"`, `zone api: cost "{header.X-Cost": a placeholder does not end; write }, or \{ for a brace`},
			{"limit 5 1m\nkey {file./etc/hostname}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{file./etc/hostname}"`, `zone api: key "{file./etc/hostname}": {file./etc/hostname} would read the disk for every request, and be the same for all; use text, or {env.*}`},
			{"limit 5 1m\nkey {client_ip}{http.request.body}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{client_ip}{http.request.body}"`, `{http.request.body} would keep the body of every request in memory; use a header field or the path`},
			{"limit 5 1m\nkey {http.request.body_base64}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{http.request.body_base64}"`, `zone api: key "{http.request.body_base64}": {http.request.body_base64} would keep the body of every request in memory; use a header field or the path`},
			{"limit 5 {http.request.body}\nfallback 5 1m", 0, `"limits":[{"max":5,"window":"{http.request.body}"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit window "{http.request.body}": {http.request.body} would keep the body of every request in memory; use a header field or the path`},
			{"limit 5 1m\ncost {http.request.body}", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"{http.request.body}"`, `zone api: cost "{http.request.body}": {http.request.body} would keep the body of every request in memory; use a header field or the path`},
			{"limit 5 1m\nalgorithm stream {\nfields b {http.request.body}\n}", 2, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"stream","fields":[{"name":"b","value":"{http.request.body}"}]}`, `zone api: algorithm stream: fields: b "{http.request.body}": {http.request.body} would keep the body of every request in memory; use a header field or the path`},
			{"limit 5 1m\npack 0", 1, `"limits":[{"max":5,"window":"1m"}],"pack":0`, `zone api: pack 0 is not above 0; write how many keys are expected`},
			{"limit 5 1m\npack -1", 1, `"limits":[{"max":5,"window":"1m"}],"pack":-1`, `zone api: pack -1 is not above 0; write how many keys are expected`},
			{"limit 5 1m\npack many", 1, `"limits":[{"max":5,"window":"1m"}],"pack":"many"`, `zone api: pack "many" is not a whole number`},
			{"limit 5 1m\npack {http.vars.n}", 1, `"limits":[{"max":5,"window":"1m"}],"pack":"{http.vars.n}"`, `zone api: pack "{http.vars.n}" is not a whole number`},
			{"limit 5 1m\npack 1 2", 1, ``, `zone api: wrong argument count or unexpected line ending after '1'; write pack <expected keys>`},
			{"limit 5 1m\npack 1\npack 1", 2, ``, `zone api: pack is given twice; keep one`},
			{"limit 5 1m\npack 1000000", 2, `"limits":[{"max":5,"window":"1m"}],"pack":1000000`, `zone api: pack 1000000: counters of algorithm zset cannot be packed; use gcra or slices, or take out pack`},
			{"limit 1 1s\nlimit 2 1m\nlimit 3 1h\nlimit 4 1d\npack 9\nalgorithm gcra", 6, `"limits":[{"max":1,"window":"1s"},{"max":2,"window":"1m"},{"max":3,"window":"1h"},{"max":4,"window":"1d"}],"pack":9,"algorithm":{"name":"gcra"}`, `zone api: pack 9: 4 limits are too many, 3 is the most with gcra; take out some, or pack`},
			{"limit 1 1s\nlimit 2 1m\npack 9\nalgorithm slices {\ncount 2\n}", 6, `"limits":[{"max":1,"window":"1s"},{"max":2,"window":"1m"}],"pack":9,"algorithm":{"name":"slices","count":2}`, `zone api: pack 9: 2 limits are too many, 1 is the most with slices; take out some, or pack`},
			{"limit 5 1m\npack 9\nalgorithm slices", 3, `"limits":[{"max":5,"window":"1m"}],"pack":9,"algorithm":{"name":"slices"}`, `zone api: pack 9: more than 3 slices cannot be packed; set count to 3 or less, or take out pack`},
			{"limit 5 1m\npack 9\nalgorithm slices {\ncount 4\n}", 5, `"limits":[{"max":5,"window":"1m"}],"pack":9,"algorithm":{"name":"slices","count":4}`, `zone api: pack 9: more than 3 slices cannot be packed; set count to 3 or less, or take out pack`},
			{"limit 5 1m\npack 9\nalgorithm gcra {\nnative on\n}", 5, `"limits":[{"max":5,"window":"1m"}],"pack":9,"algorithm":{"name":"gcra","native":"on"}`, `zone api: algorithm gcra: native on: the zone has pack, and CL.THROTTLE packs nothing; use native auto`},
			{"limit 5 1m\nipv4_prefix 33", 1, `"limits":[{"max":5,"window":"1m"}],"ipv4_prefix":33`, `zone api: ipv4_prefix 33: must be from 0 to 32`},
			{"limit 5 1m\nipv4_prefix -1", 1, `"limits":[{"max":5,"window":"1m"}],"ipv4_prefix":-1`, `zone api: ipv4_prefix -1: must be from 0 to 32`},
			{"limit 5 1m\nipv4_prefix /24", 1, ``, `zone api: ipv4_prefix "/24" is not a whole number`},
			{"limit 5 1m\nipv6_prefix 129", 1, `"limits":[{"max":5,"window":"1m"}],"ipv6_prefix":129`, `zone api: ipv6_prefix 129: must be from 0 to 128`},
			{"limit 5 1m\nipv6_prefix -1", 1, `"limits":[{"max":5,"window":"1m"}],"ipv6_prefix":-1`, `zone api: ipv6_prefix -1: must be from 0 to 128`},
			{"limit 5 1m\nenforce dry_run", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"dry_run"`, `zone api: enforce "dry_run" is unknown; write shadow`},
			{"limit 5 1m\nenforce challenge", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"challenge"`, `zone api: enforce "challenge" is unknown; write mark`},
			{"limit 5 1m\nenforce off", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"off"`, `zone api: enforce "off" is unknown; write shadow`},
			{"limit 5 1m\nenforce true", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"true"`, `zone api: enforce "true" is unknown; use one of on, shadow, mark, or a percentage such as 25%`},
			{"limit 5 1m\nenforce 1", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"1"`, `zone api: enforce "1" is unknown; write on, or 1% for one key of a hundred`},
			{"limit 5 1m\nenforce 0%", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"0%"`, `zone api: enforce 0%: must be from 1% to 100%; write shadow to deny no request`},
			{"limit 5 1m\nenforce 101%", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"101%"`, `zone api: enforce 101%: must be from 1% to 100%`},
			{"limit 5 1m\nenforce -5%", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"-5%"`, `zone api: enforce -5%: must be from 1% to 100%`},
			{"limit 5 1m\nenforce 2.5%", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"2.5%"`, `zone api: enforce 2.5%: must be a whole percentage, such as 25%`},
			{"limit 5 1m\nenforce 25% 1h", 1, ``, `zone api: wrong argument count or unexpected line ending after '25%'; write enforce on, shadow, mark, or a percentage such as 25%`},
			{"limit 5 1m\nenforce", 1, ``, `zone api: an argument is missing after 'enforce'; write enforce on, shadow, mark, or a percentage such as 25%; is a {$VARIABLE} empty?`},
			{"limit 5 1m\nenforce \"\"", 1, ``, `zone api: enforce "" is empty; use one of on, shadow, mark, or a percentage such as 25%`},
			{"limit 5 1m\nenforce {http.vars.mode}", 1, `"limits":[{"max":5,"window":"1m"}],"enforce":"{http.vars.mode}"`, `zone api: enforce "{http.vars.mode}" is unknown; use one of on, shadow, mark, or a percentage such as 25%`},
			{"limit 5 1m\nenforce on\nenforce shadow", 2, ``, `zone api: enforce is given twice; keep one`},
			{"limit 5 1m\nkey all\nenforce 25%", 2, `"limits":[{"max":5,"window":"1m"}],"key":"all","enforce":"25%"`, `zone api: enforce 25%: the key has no placeholder, so that all requests would be in or out together; write on or shadow`},
			{"limit 5 1m\nload", 1, `"limits":[{"max":5,"window":"1m"}],"load":{}`, `zone api: load: nothing says what the load is; write cpu 70% 95%, memory 80% 95% or latency 200ms 1s`},
			{"limit 5 1m\nload {\nfloor 30%\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"floor":"30%"}`, `zone api: load: nothing says what the load is; write cpu 70% 95%, memory 80% 95% or latency 200ms 1s`},
			{"limit 5 1m\nload cpu 95% 70%", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"95%","hi":"70%"}}`, `zone api: load: cpu: 95% 70%: lo must be above 0 and below hi; write lo first, as in cpu 70% 95%`},
			{"limit 5 1m\nload memory 0% 70%", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"memory":{"lo":"0%","hi":"70%"}}`, `zone api: load: memory: 0% 70%: lo must be above 0 and below hi; write lo first, as in memory 80% 95%`},
			{"limit 5 1m\nload cpu 70% 101%", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"101%"}}`, `zone api: load: cpu: 101% is above the most, which is 100%; write a lower one, as in cpu 70% 95%`},
			{"limit 5 1m\nload cpu 0.7 0.95", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":0.7,"hi":0.95}}`, `zone api: load: cpu: lo "0.7" is not a percentage; write a number and %, as in cpu 70% 95%`},
			{"limit 5 1m\nload cpu 70% NaN%", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"NaN%"}}`, `zone api: load: cpu: hi "NaN%" is not a percentage; write a number and %, as in cpu 70% 95%`},
			{"limit 5 1m\nload cpu 70%", 1, ``, `zone api: cpu takes two values: write cpu <lo> <hi>`},
			{"limit 5 1m\nload latency 1s 200ms", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"latency":{"lo":"1s","hi":"200ms"}}`, `zone api: load: latency: 1s 200ms: lo must be above 0 and below hi; write lo first, as in latency 200ms 1s`},
			{"limit 5 1m\nload latency 1s 2m", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"latency":{"lo":"1s","hi":"2m"}}`, `zone api: load: latency: 2m is above the most, which is 1m; write a lower one, as in latency 200ms 1s`},
			{"limit 5 1m\nload latency fast slow", 1, `"limits":[{"max":5,"window":"1m"}],"load":{"latency":{"lo":"fast","hi":"slow"}}`, `zone api: load: latency: lo "fast" is not a duration, such as 90s, 5m or 1d, as in latency 200ms 1s`},
			{"limit 5 1m\nload cpu 70% 95% {\nfloor 0%\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"floor":"0%"}`, `zone api: load: floor 0%: must be above 0% and at most 100%`},
			{"limit 5 1m\nload cpu 70% 95% {\nfloor 30\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"floor":30}`, `zone api: load: floor "30" is not a percentage; write a number and %, as in floor 30%`},
			{"limit 5 1m\nload cpu 70% 95% {\nfloor 100%\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"floor":"100%"}`, `zone api: load: floor 100%: limits would not change; write a lower floor`},
			{"limit 5 1m\nload cpu 70% 95% {\nceiling 90%\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"ceiling":"90%"}`, `zone api: load: ceiling 90%: must be from 100% to 1000%`},
			{"limit 5 1m\nload cpu 70% 95% {\nrecover 0s\n}", 3, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"recover":"0s"}`, `zone api: load: recover 0s: must be from 1s to 1h`},
			{"limit 5 1m\nload cpu 70% 95% {\ncombine min\n}", 2, `"limits":[{"max":5,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"combine":"min"}`, `; take it out: the factors of all signals are multiplied`},
			{"limit 5 1m\nload cpu 70% 95% {\ncpu 70% 95%\n}", 2, ``, `zone api: cpu is given twice; keep one`},
			{"limit 5 1m\nload disk 70% 95%", 1, ``, `zone api: unrecognized subdirective "disk" of load; use cpu, memory, latency, floor, ceiling or recover`},
			{"limit 100000 1h\nload cpu 70% 95%", 2, `"limits":[{"max":100000,"window":"1h"}],"load":{"cpu":{"lo":"70%","hi":"95%"}}`, `zone api: limit 100000 1h: load scales limits with windows of 60s or less, since a longer one remembers what passed before and would deny everything; add a short limit, such as limit 28 1s`},
			{"limit 5 {http.vars.w}\nfallback 5 1m\nload cpu 70% 95%", 3, `"limits":[{"max":5,"window":"{http.vars.w}"}],"fallback":{"max":5,"window":"1m"},"load":{"cpu":{"lo":"70%","hi":"95%"}}`, `zone api: limit 5 {http.vars.w}: load scales limits with windows of 60s or less, and this one is not known before a request comes; write the window without a placeholder`},
			{"limit {http.vars.max} 10s\nfallback 5 1h\nload cpu 70% 95%", 3, `"limits":[{"max":"{http.vars.max}","window":"10s"}],"fallback":{"max":5,"window":"1h"},"load":{"cpu":{"lo":"70%","hi":"95%"}}`, `zone api: fallback 5 1h: load scales limits with windows of 60s or less, and this one may take the place of such a limit; write a shorter window`},
			{"limit 5 1m\nlease 5\nload cpu 70% 95%", 3, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5},"load":{"cpu":{"lo":"70%","hi":"95%"}}`, `zone api: load and lease cannot be combined: a lease needs one limit for all requests on a key; take out one of them`},
			{"limit 5 1m\nalgorithm gcra\nload cpu 70% 95%", 3, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"gcra"},"load":{"cpu":{"lo":"70%","hi":"95%"}}`, `zone api: load and algorithm gcra cannot be combined: Caddys with different factors would spoil each other's counts; use zset, log, stream or slices`},
			{"limit 500 1m\nalgorithm slices {\nsize 60ms\n}\nload cpu 70% 95% {\nceiling 200%\n}", 7, `"limits":[{"max":500,"window":"1m"}],"algorithm":{"name":"slices","size":"60ms"},"load":{"cpu":{"lo":"70%","hi":"95%"},"ceiling":"200%"}`, `zone api: load: limit 500 1m at ceiling 200%: size 60ms would make a decision on the limit 1000 and the window 1m0s read 1000 slices, where 600 is the most; use longer slices, layers, or algorithm log`},
			{"limit 5 1m\nlease 1", 1, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":1}`, `zone api: lease: units: 1 is below 2`},
			{"limit 5 1m\nlease many", 1, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":"many"}`, `zone api: lease: units: "many" is not a whole number`},
			{"limit 5 1m\nlease 5 0s", 1, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5,"ttl":"0s"}`, `zone api: lease: ttl 0s is not a whole number of milliseconds above 0`},
			{"limit 5 1m\nlease 5 soon", 1, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5,"ttl":"soon"}`, `zone api: lease: ttl: "soon" is not a duration, such as 90s, 5m or 1d`},
			{"limit 5 1m\nalgorithm gcra\nlease 5", 2, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"gcra"},"lease":{"units":5}`, `zone api: lease: gcra cannot be leased; use zset, log or strict slices`},
			{"limit 5 1m\ncount_if", 1, `"limits":[{"max":5,"window":"1m"}],"count_if":{}`, `zone api: count_if: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take count_if out`},
			{"limit 5 1m\ncount_if status 42", 1, `"limits":[{"max":5,"window":"1m"}],"count_if":{"status_code":[42]}`, `zone api: count_if: status 42: must be a status code, or one digit for a class of them`},
			{"limit 5 1m\ncount_if status many", 1, ``, `zone api: count_if: write status <code>... or header <field> <value>: bad status value 'many': strconv.Atoi: parsing "many": invalid syntax`},
			{"limit 5 1m\ncount_if path /x", 1, ``, `zone api: count_if: write status <code>... or header <field> <value>: unrecognized response matcher path`},
			{"limit 5 1m\ncost 0\ncount_if status 401", 2, `"limits":[{"max":5,"window":"1m"}],"cost":0,"count_if":{"status_code":[401]}`, `zone api: count_if: cost 0 spends nothing that could be given back; take out cost or count_if`},
			{"limit 5 1m\nalgorithm gcra\ncount_if status 401", 2, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"gcra"},"count_if":{"status_code":[401]}`, `zone api: count_if: algorithm gcra cannot give units back at the time at which they were spent; use zset, log, stream or slices, or take out count_if`},
			{"limit 5 1m\nlease 5\ncount_if status 401", 2, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5},"count_if":{"status_code":[401]}`, `zone api: count_if: lease 5: units that were taken ahead cannot be given back at the time at which they were spent; take out lease, or take out count_if`},
			{"limit 5 1m\nenforce shadow\ncount_if status 401", 2, `"limits":[{"max":5,"window":"1m"}],"enforce":"shadow","count_if":{"status_code":[401]}`, `zone api: enforce shadow and count_if cannot be combined, for units counted beside the handlers are not given back; write on or mark, or take out count_if`},
			{"limit 5 1m\ncount_if status 401\nenforce 25%", 2, `"limits":[{"max":5,"window":"1m"}],"enforce":"25%","count_if":{"status_code":[401]}`, `zone api: enforce 25% and count_if cannot be combined, for units counted beside the handlers are not given back; write on or mark, or take out count_if`},
			{"limit 5 1m\nenforce shadow\nsettle {\nheader X-Units\n}", 4, `"limits":[{"max":5,"window":"1m"}],"enforce":"shadow","settle":{"header":"X-Units"}`, `zone api: enforce shadow and settle cannot be combined, for units counted beside the handlers are not given back; write on or mark, or take out settle`},
			{"limit 5 1m\ncount_if status 401\ncount_if status 403", 2, ``, `zone api: count_if is given twice; keep one`},
			{"limit 5 1m\nsettle", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{}`, `zone api: settle: nothing says where the cost is; write usage openai, usage anthropic, header <name> or json <path>`},
			{"limit 5 1m\nsettle {\nusage openai\nheader X-Units\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","header":"X-Units"}`, `zone api: settle: usage and header cannot be combined; keep the one that tells the cost`},
			{"limit 5 1m\nsettle {\nheader X-Units\njson units\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"header":"X-Units","json":"units"}`, `zone api: settle: header and json cannot be combined; keep the one that tells the cost`},
			{"limit 5 1m\nsettle usage mistral", 1, ``, `zone api: usage "mistral" is unknown; use one of openai, anthropic`},
			{"limit 5 1m\nsettle usage", 1, ``, `zone api: an argument is missing after 'usage'; write usage openai, or usage anthropic; is a {$VARIABLE} empty?`},
			{"limit 5 1m\nsettle cookie x", 1, ``, `zone api: unrecognized subdirective "cookie" of settle; use usage, header, json, weight, reserve_json, reserve_body, reserve_max, on_missing, on_abort, refund_if or max`},
			{"limit 5 1m\nsettle header X-Units keep", 1, ``, `zone api: unrecognized word "keep" of header; use strip`},
			{"limit 5 1m\nsettle header X:Units", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{"header":"X:Units"}`, `zone api: settle: header "X:Units" is not the name of a header field`},
			{"limit 5 1m\nsettle json ..x", 1, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"..x"}`, `zone api: settle: json path "..x" must begin with a plain name, such as usage.total_tokens`},
			{"limit 5 1m\nsettle {\njson units\nweight input 2\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"units","weight":{"input":2}}`, `zone api: settle: weight is that of a token, and only usage tells tokens; take out weight`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input -1\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","weight":{"input":-1}}`, `zone api: settle: weight input must be from 0 to 1000, not -1`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input NaN output 0\n}", 4, ``, `zone api: settle: weight input must be from 0 to 1000, not NaN`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input 0 output 0\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","weight":{"input":0,"output":0}}`, `zone api: settle: weight: with 0 for input and output, requests cost nothing; write weight input <units> output <units>`},
			{"limit 5 1m\nsettle {\nusage openai\nweight total 1", 3, ``, `zone api: weight "total" is unknown; use one of input, cached, output`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input", 3, ``, `zone api: weight: write weight input <units> cached <units> output <units>, or some of these`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input 1 input 2", 3, ``, `zone api: weight input is given twice; keep one`},
			{"limit 5 1m\nsettle {\nusage openai\nweight input many", 3, ``, `zone api: weight input "many" is not a number`},
			{"limit 5 1m\nsettle {\nusage openai\nreserve_json max*\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","reserve_json":["max*"]}`, `zone api: settle: reserve_json: field "max*" must be a name, or names with dots between them, such as options.num_predict`},
			{"limit 5 1m\nsettle {\nusage openai\nreserve_body 4\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","reserve_body":4}`, `zone api: settle: reserve_body 4 adds tokens of input to what reserve_json reserves, with usage; write usage and reserve_json, or take out reserve_body`},
			{"limit 5 1m\nsettle {\nusage openai\nreserve_max 4\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","reserve_max":4}`, `zone api: settle: reserve_max 4 bounds what reserve_json reserves; write reserve_json, or take out reserve_max`},
			{"limit 5 1m\nsettle {\njson a.b\nreserve_json max_tokens\nreserve_max 0\n}", 5, `"limits":[{"max":5,"window":"1m"}],"settle":{"json":"a.b","reserve_json":["max_tokens"],"reserve_max":0}`, `zone api: settle: reserve_max 0: must be from 1 to 1000000000000`},
			{"limit 5 1m\nsettle {\nusage openai\nreserve_json max_tokens\nreserve_max many\n}", 5, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","reserve_json":["max_tokens"],"reserve_max":"many"}`, `zone api: settle: reserve_max "many" is not a whole number`},
			{"limit 500 1m\ncost 20\nsettle {\nusage openai\nreserve_json max_tokens\nreserve_max 10\n}", 6, `"limits":[{"max":500,"window":"1m"}],"cost":20,"settle":{"usage":"openai","reserve_json":["max_tokens"],"reserve_max":10}`, `zone api: settle: reserve_max 10 is below cost 20, which is reserved if the body tells nothing; raise reserve_max, or lower cost`},
			{"limit 5 1m\nsettle {\nusage openai\nreserve_json max_tokens\nreserve_body 0\n}", 5, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","reserve_json":["max_tokens"],"reserve_body":0}`, `zone api: settle: reserve_body 0: must be from 1 to 262144 bytes`},
			{"limit 5 1m\nsettle {\nusage openai\non_missing drop\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","on_missing":"drop"}`, `zone api: settle: on_missing "drop" is unknown; use keep, refund, or a number of units from 0 to 1000000000000`},
			{"limit 5 1m\nsettle {\nusage openai\non_abort -1\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","on_abort":-1}`, `zone api: settle: on_abort "-1" is unknown; use keep, refund, or a number of units from 0 to 1000000000000`},
			{"limit 5 1m\nsettle {\nusage openai\nrefund_if\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","refund_if":{}}`, `zone api: settle: refund_if: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take refund_if out`},
			{"limit 5 1m\nsettle {\nusage openai\nrefund_if status 42\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","refund_if":{"status_code":[42]}}`, `zone api: settle: refund_if: status 42: must be a status code, or one digit for a class of them`},
			{"limit 5 1m\nsettle {\nusage openai\nmax 0\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","max":0}`, `zone api: settle: max 0: must be from 1 to 1000000000000`},
			{"limit 5 1m\nsettle {\nusage openai\nmax many\n}", 4, `"limits":[{"max":5,"window":"1m"}],"settle":{"usage":"openai","max":"many"}`, `zone api: settle: max "many" is not a whole number`},
			{"limit 5 1m\nsettle {\nusage openai\nusage openai", 3, ``, `zone api: usage is given twice; keep one`},
			{"limit 5 1m\ncost 10\nsettle {\nusage openai\nmax 9\n}", 5, `"limits":[{"max":5,"window":"1m"}],"cost":10,"settle":{"usage":"openai","max":9}`, `zone api: settle: max 9 is below cost 10; raise max, or lower cost`},
			{"limit 5 1m\ncost 0\nsettle usage openai", 2, `"limits":[{"max":5,"window":"1m"}],"cost":0,"settle":{"usage":"openai"}`, `zone api: settle: cost 0 reserves nothing that could be settled; write what a request is thought to cost, or take out cost`},
			{"limit 5 1m\ncount_if status 5xx\nsettle usage openai", 2, `"limits":[{"max":5,"window":"1m"}],"count_if":{"status_code":[5]},"settle":{"usage":"openai"}`, `zone api: settle and count_if cannot be combined; use refund_if in settle, or two zones`},
			{"limit 5 1m\nalgorithm gcra\nsettle usage openai", 2, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"gcra"},"settle":{"usage":"openai"}`, `zone api: settle: algorithm gcra cannot give units back at the time at which they were spent; use zset, log, stream or slices, or take out settle`},
			{"limit 5 1m\nlease 5\nsettle usage openai", 2, `"limits":[{"max":5,"window":"1m"}],"lease":{"units":5},"settle":{"usage":"openai"}`, `zone api: settle: lease 5: units that were taken ahead cannot be given back at the time at which they were spent; take out lease, or take out settle`},
			{"limit 5 1m\nsettle usage openai\nsettle usage openai", 2, ``, `zone api: settle is given twice; keep one`},
			{"limit 5 1m\nalgorithm gcra {\nnative on\n}\nsettle usage openai", 4, `"limits":[{"max":5,"window":"1m"}],"algorithm":{"name":"gcra","native":"on"},"settle":{"usage":"openai"}`, `zone api: settle: algorithm gcra cannot give units back at the time at which they were spent; use zset, log, stream or slices, or take out settle`},
			{"limit 5 1m\nlease", 1, ``, `zone api: an argument is missing after 'lease'; write lease <units> [<ttl>]; is a {$VARIABLE} empty?`},
			{"limit 5 1m\nlease 5 1s 2s", 1, ``, `zone api: wrong argument count or unexpected line ending after '2s'; write lease <units> [<ttl>]`},
			{"limit 5 1m\nempty_key drop", 1, `"limits":[{"max":5,"window":"1m"}],"empty_key":"drop"`, `zone api: empty_key "drop" is unknown; use one of shared, skip, deny`},
			{"limit 5 1m\nempty_key skip 401", 1, `"limits":[{"max":5,"window":"1m"}],"empty_key":"skip","empty_key_status":401`, `zone api: empty_key_status 401: only empty_key deny has a status; write empty_key deny 401, or take the status out`},
			{"limit 5 1m\nempty_key deny 200", 1, `"limits":[{"max":5,"window":"1m"}],"empty_key":"deny","empty_key_status":200`, `zone api: empty_key deny: status 200: must be from 400 to 599`},
			{"limit 5 1m\nempty_key deny 0", 1, ``, `zone api: empty_key deny: status 0: must be from 400 to 599`},
			{"limit 5 1m\nempty_key deny no", 1, ``, `zone api: empty_key deny: status "no" is not a whole number`},
			{"limit 5 1m\nempty_key deny 401 403", 1, ``, `zone api: wrong argument count or unexpected line ending after 'deny'; write empty_key shared, skip, deny, or deny <status>`},
			{"limit 5 1m\nmatch no_such_matcher", 1, ``, `zone api: getting matcher module 'no_such_matcher': module not registered: http.matchers.no_such_matcher`},
			{"limit 5 1m\nmatch", 1, `"limits":[{"max":5,"window":"1m"}],"match":[{}]`, `zone api: match: no matcher, so every request would match; name one, or take match out`},
			{"limit 5 1m\nmatch {\n}", 2, `"limits":[{"max":5,"window":"1m"}],"match":[null]`, `zone api: match: no matcher, so every request would match; name one, or take match out`},
			{"limit 5 1m\nkey \"\"", 1, ``, `zone api: key "" is empty; write what has a quota of its own, such as {client_ip}`},
			// Caddy takes no dot in what these words stand for, in a Caddyfile either.
			{"limit 5 1m\nkey {cookie.connect.sid}", 1, `"limits":[{"max":5,"window":"1m"}],"key":"{cookie.connect.sid}"`, `zone api: key "{cookie.connect.sid}": {cookie.connect.sid} is no placeholder here; write {http.request.cookie.connect.sid}`},
			{"limit {vars.max.api} 1m\nfallback 5 1m", 0, `"limits":[{"max":"{vars.max.api}","window":"1m"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit max "{vars.max.api}": {vars.max.api} is no placeholder here; write {http.vars.max.api}`},
			{"limit 5 {vars.w.api}\nfallback 5 1m", 0, `"limits":[{"max":5,"window":"{vars.w.api}"}],"fallback":{"max":5,"window":"1m"}`, `zone api: limit window "{vars.w.api}": {vars.w.api} is no placeholder here; write {http.vars.w.api}`},
			{"limit 5 1m\ncost 1{vars.cost.api}", 1, `"limits":[{"max":5,"window":"1m"}],"cost":"1{vars.cost.api}"`, `zone api: cost "1{vars.cost.api}": {vars.cost.api} is no placeholder here; write {http.vars.cost.api}`},
			{"limit 5 1m\nmatch method GET\nmatch method PUT", 2, ``, `zone api: match is given twice; keep one`},
		})
}

func TestRefusedAlgorithm(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit 5 1m\n%s\n\t\t}\n\t}\n}\n", 5,
		`{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],"algorithm":{%s}}]}`, []refusal{
			{"algorithm lru", 0, `"name":"lru"`, `zone api: algorithm "lru" is unknown; use zset, log, stream, slices or gcra`},
			{"algorithm", 0, ``, `zone api: an argument is missing after 'algorithm'; write algorithm zset, log, stream, slices or gcra; is a {$VARIABLE} empty?`},
			{"algorithm zset slices", 0, ``, `zone api: wrong argument count or unexpected line ending after 'zset'; write algorithm zset, log, stream, slices or gcra`},
			{"algorithm zset\nalgorithm zset", 1, ``, `zone api: algorithm is given twice; keep one`},
			{"algorithm zset {\ncount 5\n}", 1, `"name":"zset","count":5`, `zone api: algorithm zset: count is an option of slices`},
			{"algorithm zset {\nsize 1s\n}", 1, `"size":"1s"`, `zone api: algorithm zset: size is an option of slices`},
			{"algorithm zset {\nweighted\n}", 1, `"name":"zset","weighted":true`, `zone api: algorithm zset: weighted is an option of slices`},
			{"algorithm zset {\nstrict\n}", 1, ``, `zone api: algorithm zset: strict is an option of slices`},
			{"algorithm log {\ncount 5\n}", 1, `"name":"log","count":5`, `zone api: algorithm log: count is an option of slices`},
			{"algorithm log {\nstrict\n}", 1, ``, `zone api: algorithm log: strict is an option of slices`},
			{"algorithm slices {\nwidth 5\n}", 1, ``, `zone api: unrecognized subdirective "width" of algorithm slices; use count, size, strict, weighted, layers or adaptive`},
			{"algorithm slices {\ncount 0\n}", 1, `"name":"slices","count":0`, `zone api: algorithm slices: count 0: must be greater than 0`},
			{"algorithm slices {\ncount -3\n}", 1, `"name":"slices","count":-3`, `zone api: algorithm slices: count -3: must be greater than 0`},
			{"algorithm slices {\ncount few\n}", 1, `"name":"slices","count":"few"`, `zone api: algorithm slices: count "few" is not a whole number`},
			{"algorithm slices {\ncount 5 6\n}", 1, ``, `zone api: wrong argument count or unexpected line ending after '5'; write count <slices in a window>`},
			{"algorithm slices {\ncount 5\ncount 6\n}", 2, ``, `zone api: count is given twice; keep one`},
			{"algorithm slices {\nsize 0\n}", 1, `"name":"slices","size":0`, `zone api: algorithm slices: size 0: must be greater than 0`},
			{"algorithm slices {\nsize -1s\n}", 1, `"name":"slices","size":"-1s"`, `zone api: algorithm slices: size -1s is not a whole number of milliseconds above 0`},
			{"algorithm slices {\nsize 1.5ms\n}", 1, `"name":"slices","size":"1.5ms"`, `zone api: algorithm slices: size 1.5ms is not a whole number of milliseconds above 0`},
			{"algorithm slices {\nsize 5\n}", 1, `"name":"slices","size":5`, `zone api: algorithm slices: size 5 has no unit; write 5s for seconds, or 5m for minutes`},
			{"algorithm slices {\nsize small\n}", 1, `"name":"slices","size":"small"`, `zone api: algorithm slices: size "small" is not a duration, such as 90s, 5m or 1d`},
			{"algorithm slices {\ncount 5\nsize 1s\n}", 2, `"name":"slices","count":5,"size":"1s"`, `zone api: algorithm slices: count 5 and size 1s cannot be combined; take out one`},
			{"algorithm zset {\nlayers 10s 1s\n}", 1, `"layers":{"coarse":"10s","fine":"1s"}`, `zone api: algorithm zset: layers is an option of slices`},
			{"algorithm zset {\nadaptive 1s 10s\n}", 1, `"adaptive":{"min":"1s","max":"10s"}`, `zone api: algorithm zset: adaptive is an option of slices`},
			{"algorithm slices {\nlayers 10s\n}", 1, ``, `zone api: an argument is missing after '10s'; write layers <coarse> <fine>, such as layers 10s 1s; is a {$VARIABLE} empty?`},
			{"algorithm slices {\nlayers 10s 1s 1ms\n}", 1, ``, `zone api: wrong argument count or unexpected line ending after '1s'; write layers <coarse> <fine>, such as layers 10s 1s`},
			{"algorithm slices {\nlayers 10s few\n}", 1, `"name":"slices","layers":{"coarse":"10s","fine":"few"}`, `zone api: algorithm slices: layers 10s few: fine "few" is not a duration, such as 90s, 5m or 1d`},
			{"algorithm slices {\nlayers 0 1s\n}", 1, `"name":"slices","layers":{"coarse":0,"fine":"1s"}`, `zone api: algorithm slices: layers 0 1s: coarse 0: must be greater than 0`},
			{"algorithm slices {\nlayers 1s 10s\n}", 1, `"name":"slices","layers":{"coarse":"1s","fine":"10s"}`, `zone api: algorithm slices: layers 1s 10s: coarse 1s is not a whole multiple of fine 10s`},
			{"algorithm slices {\nlayers 10s 1s\nlayers 10s 1s\n}", 2, ``, `zone api: layers is given twice; keep one`},
			{"algorithm slices {\nlayers 2m 1s\n}", 3, `"name":"slices","layers":{"coarse":"2m","fine":"1s"}`, `zone api: algorithm slices: coarse 2m0s is longer than the window 1m0s; use a shorter one`},
			{"algorithm slices {\nlayers 10s 1ms\n}", 3, `"name":"slices","layers":{"coarse":"10s","fine":"1ms"}`, `zone api: algorithm slices: coarse 10s and fine 1ms would make a decision on the window 1m0s read 10006 fields, where 1000 is the most; use longer slices, or ones closer in length`},
			{"fallback 5060 1m\nalgorithm slices {\nsize 1ms\n}", 4, `"name":"slices","size":"1ms"},"fallback":{"max":5060,"window":"1m"`, `zone api: algorithm slices: size 1ms would make a decision on the limit 5060 and the window 1m0s read 5060 slices, where 600 is the most; use longer slices, layers, or algorithm log`},
			{"fallback 5060 1m\nalgorithm slices {\ncount 900\n}", 4, `"name":"slices","count":900},"fallback":{"max":5060,"window":"1m"`, `zone api: algorithm slices: count 900 would make a decision on the limit 5060 and the window 1m0s read 900 slices, where 600 is the most; use fewer slices, layers, or algorithm log`},
			{"fallback 5060 1m\nalgorithm slices {\nadaptive 10ms 1s\n}", 4, `"name":"slices","adaptive":{"min":"10ms","max":"1s"}},"fallback":{"max":5060,"window":"1m"`, `zone api: algorithm slices: adaptive 10ms 1s would make a decision on the limit 5060 and the window 1m0s read 5060 slices, where 600 is the most; write a longer min, layers, or algorithm log`},
			{"limit {http.vars.max} 5s\nfallback 5 1m\nalgorithm slices {\nlayers 10s 1s\n}", 5, ``, `zone api: algorithm slices: coarse 10s is longer than the window 5s; use a shorter one`},
			{"fallback 5 5s\nalgorithm slices {\nlayers 10s 1s\n}", 4, ``, `zone api: algorithm slices: coarse 10s is longer than the window 5s; use a shorter one`},
			{"algorithm slices {\nlayers 10s 1s\ncount 5\n}", 2, `"name":"slices","layers":{"coarse":"10s","fine":"1s"},"count":5`, `zone api: algorithm slices: layers 10s 1s and count 5 cannot be combined; take out one`},
			{"algorithm slices {\nsize 1s\nlayers 10s 1s\n}", 2, `"name":"slices","layers":{"coarse":"10s","fine":"1s"},"size":"1s"`, `zone api: algorithm slices: layers 10s 1s and size 1s cannot be combined; take out one`},
			{"algorithm slices {\nweighted\nlayers 10s 1s\n}", 2, `"name":"slices","layers":{"coarse":"10s","fine":"1s"},"weighted":true`, `zone api: algorithm slices: layers 10s 1s and weighted cannot be combined; take out weighted, for layers are strict`},
			{"algorithm slices {\nlayers 10s 1s\nadaptive 1s 2s\n}", 2, `"name":"slices","layers":{"coarse":"10s","fine":"1s"},"adaptive":{"min":"1s","max":"2s"}`, `zone api: algorithm slices: layers 10s 1s and adaptive 1s 2s cannot be combined; take out one`},
			{"algorithm slices {\nadaptive 1s\n}", 1, ``, `zone api: an argument is missing after '1s'; write adaptive <min> <max>, such as adaptive 100ms 2s; is a {$VARIABLE} empty?`},
			{"algorithm slices {\nadaptive 0 1s\n}", 1, `"name":"slices","adaptive":{"min":0,"max":"1s"}`, `zone api: algorithm slices: adaptive 0 1s: min 0: must be greater than 0`},
			{"algorithm slices {\nadaptive 1s much\n}", 1, `"name":"slices","adaptive":{"min":"1s","max":"much"}`, `zone api: algorithm slices: adaptive 1s much: max "much" is not a duration, such as 90s, 5m or 1d`},
			{"algorithm slices {\nadaptive 2s 1s\n}", 1, `"name":"slices","adaptive":{"min":"2s","max":"1s"}`, `zone api: algorithm slices: adaptive 2s 1s: min 2s is above max 1s; write the shorter one first`},
			{"algorithm slices {\nadaptive 1s 2s\ncount 5\n}", 2, `"name":"slices","adaptive":{"min":"1s","max":"2s"},"count":5`, `zone api: algorithm slices: adaptive 1s 2s and count 5 cannot be combined; take out one`},
			{"algorithm slices {\nadaptive 1s 2s\nsize 1s\n}", 2, `"name":"slices","adaptive":{"min":"1s","max":"2s"},"size":"1s"`, `zone api: algorithm slices: adaptive 1s 2s and size 1s cannot be combined; take out one`},
			{"algorithm slices {\nadaptive 1s 2s\nweighted\n}", 2, `"name":"slices","adaptive":{"min":"1s","max":"2s"},"weighted":true`, `zone api: algorithm slices: adaptive 1s 2s and weighted cannot be combined; take out weighted, for adaptive slices are strict`},
			{"algorithm slices {\nstrict\nweighted\n}", 2, ``, `zone api: strict and weighted cannot be combined; take out one`},
			{"algorithm slices {\nweighted 0.5\n}", 1, ``, `zone api: wrong argument count or unexpected line ending after 'weighted'; write weighted alone`},
			{"algorithm slices {\nburst 5\n}", 1, `"name":"slices","burst":5`, `zone api: algorithm slices: burst is an option of gcra`},
			{"algorithm zset {\nnative off\n}", 1, `"native":"off"`, `zone api: algorithm zset: native is an option of gcra`},
			{"algorithm gcra {\nsize 1s\n}", 1, `"name":"gcra","size":"1s"`, `zone api: algorithm gcra: size is an option of slices`},
			{"algorithm gcra {\nstrict\n}", 1, ``, `zone api: algorithm gcra: strict is an option of slices`},
			{"algorithm gcra {\nburst 0\n}", 1, `"name":"gcra","burst":0`, `zone api: algorithm gcra: burst 0: must be greater than 0`},
			{"algorithm gcra {\nburst -5\n}", 1, `"name":"gcra","burst":-5`, `zone api: algorithm gcra: burst -5: must be greater than 0`},
			{"algorithm gcra {\nburst {http.vars.b}\n}", 1, `"name":"gcra","burst":"{http.vars.b}"`, `zone api: algorithm gcra: burst "{http.vars.b}" is not a whole number`},
			{"algorithm gcra {\nburst\n}", 1, ``, `zone api: an argument is missing after 'burst'; write burst <units>; is a {$VARIABLE} empty?`},
			{"algorithm gcra {\nburst 5\nburst 6\n}", 2, ``, `zone api: burst is given twice; keep one`},
			{"algorithm gcra {\nburst 9007199254740992\n}", 3, `"name":"gcra","burst":9007199254740992`, `zone api: algorithm gcra: burst 9007199254740992 × window 1m0s is too large: burst × milliseconds must not exceed 2^53`},
			{"algorithm gcra {\nnative maybe\n}", 1, `"name":"gcra","native":"maybe"`, `zone api: algorithm gcra: native "maybe" is unknown; use one of auto, on, off`},
			{"algorithm gcra {\nnative on off\n}", 1, ``, `zone api: wrong argument count or unexpected line ending after 'on'; write native auto, on or off`},
			{"algorithm slices {\nkeep 1h\n}", 1, `"name":"slices","keep":"1h"`, `zone api: algorithm slices: keep is an option of stream`},
			{"algorithm zset {\nfields a b\n}", 1, `"fields":[{"name":"a","value":"b"}]`, `zone api: algorithm zset: fields is an option of stream`},
			{"algorithm stream {\ncount 5\n}", 1, `"name":"stream","count":5`, `zone api: algorithm stream: count is an option of slices`},
			{"algorithm stream {\nstrict\n}", 1, ``, `zone api: algorithm stream: strict is an option of slices`},
			{"algorithm stream {\nfields\n}", 1, ``, `zone api: an argument is missing after 'fields'; write fields <name> <value> ...; is a {$VARIABLE} empty?`},
			{"algorithm stream {\nfields user {header.X-User} path\n}", 1, ``, `zone api: algorithm stream: fields user {http.request.header.X-User} path: a value is missing; write fields <name> <value> ..., and values with spaces in quotes`},
			{"algorithm stream {\nfields \"\" 1\n}", 1, `"name":"stream","fields":[{"value":"1"}]`, `zone api: algorithm stream: fields: the name of the value "1" is empty`},
			{"algorithm stream {\nfields a 1 b 2 a 3\n}", 1, `"name":"stream","fields":[{"name":"a"},{"name":"b"},{"name":"a"}]`, `zone api: algorithm stream: fields: duplicate field a; keep one`},
			{"algorithm stream {\nfields a 1\nfields b 2\n}", 2, ``, `zone api: fields is given twice; keep one`},
			{"algorithm stream {\nfields a \"{x\"\n}", 1, `"name":"stream","fields":[{"name":"a","value":"{x"}]`, `zone api: algorithm stream: fields: a "{x": a placeholder does not end; write }, or \{ for a brace`},
			{"algorithm stream {\nfields a {cookie.connect.sid}\n}", 1, `"name":"stream","fields":[{"name":"a","value":"{cookie.connect.sid}"}]`, `zone api: algorithm stream: fields: a "{cookie.connect.sid}": {cookie.connect.sid} is no placeholder here; write {http.request.cookie.connect.sid}`},
			{"algorithm stream {\nfields cost 1\n}", 1, `"name":"stream","fields":[{"name":"cost","value":"1"}]`, `zone api: algorithm stream: fields: the name cost is taken; use another one than cost, total and gone`},
			{"algorithm stream {\nfields total 1\n}", 1, `"name":"stream","fields":[{"name":"total"}]`, `zone api: algorithm stream: fields: the name total is taken; use another one than cost, total and gone`},
			{"algorithm stream {\nfields gone 1\n}", 1, `"name":"stream","fields":[{"name":"gone"}]`, `zone api: algorithm stream: fields: the name gone is taken; use another one than cost, total and gone`},
			{"algorithm stream {\nfields" + strings.Repeat(" a b", 101) + "\n}", 1, ``, `zone api: algorithm stream: fields: 101 are too many; 100 are allowed`},
			{"algorithm stream {\nmax_value 31\n}", 1, `"name":"stream","max_value":31`, `zone api: algorithm stream: max_value 31 is too small; write 32 or more`},
			{"algorithm stream {\nmax_value long\n}", 1, `"name":"stream","max_value":"long"`, `zone api: algorithm stream: max_value "long" is not a whole number`},
			{"algorithm stream {\nmax_entry 0\n}", 1, `"name":"stream","max_entry":0`, `zone api: algorithm stream: max_entry 0 is too small for 0 fields, which take their names and 32 bytes each; write 1 or more`},
			{"algorithm stream {\nfields user 1 path 2\nmax_entry 71\n}", 2, `"name":"stream","fields":[{"name":"user"},{"name":"path"}],"max_entry":71`, `zone api: algorithm stream: max_entry 71 is too small for 2 fields, which take their names and 32 bytes each; write 72 or more`},
			{"algorithm stream {\nmax_value 64\nmax_value 64\n}", 2, ``, `zone api: max_value is given twice; keep one`},
			{"algorithm log {\nmax_value 64\n}", 1, `"name":"log","max_value":64`, `zone api: algorithm log: max_value is an option of stream`},
			{"algorithm zset {\nmax_entry 64\n}", 1, `"name":"zset","max_entry":64`, `zone api: algorithm zset: max_entry is an option of stream`},
			{"algorithm stream {\nkeep -1s\n}", 1, `"name":"stream","keep":"-1s"`, `zone api: algorithm stream: keep -1s is not a whole number of milliseconds of 0 or more`},
			{"algorithm stream {\nkeep 1.5ms\n}", 1, `"name":"stream","keep":1500000`, `zone api: algorithm stream: keep 1.5ms is not a whole number of milliseconds of 0 or more`},
			{"algorithm stream {\nkeep forever\n}", 1, `"name":"stream","keep":"forever"`, `zone api: algorithm stream: keep "forever" is not a duration, such as 90s, 5m or 1d`},
			{"algorithm stream {\nkeep 1h 2h\n}", 1, ``, `zone api: wrong argument count or unexpected line ending after '1h'; write keep <duration>`},
		})
}

func TestRefusedNative(t *testing.T) {
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n\t\t\talgorithm gcra {\n\t\t\t\tnative on\n\t\t\t}\n%s\n\t\t}\n\t}\n}\n", 7,
		`{"handler":"sliding_window","zones":[{"name":"api","algorithm":{"name":"gcra","native":"on"},%s}]}`, []refusal{
			{"limit 5 1m\nlimit 9 1h", 2, `"limits":[{"max":5,"window":"1m"},{"max":9,"window":"1h"}]`, `zone api: algorithm gcra: native on: there is more than one limit; use native auto`},
			{"limit {http.vars.max} 1m\nfallback 5 1m", 2, `"limits":[{"max":"{http.vars.max}","window":"1m"}],"fallback":{"max":5,"window":"1m"}`, `zone api: algorithm gcra: native on: limit {http.vars.max} 1m holds a placeholder; use native auto`},
			{"limit 5 1500ms", 1, `"limits":[{"max":5,"window":"1500ms"}]`, `zone api: algorithm gcra: native on: CL.THROTTLE takes no window of 1.5s, but whole seconds; use native auto`},
			{"limit 7 1s", 1, `"limits":[{"max":7,"window":"1s"}]`, `zone api: algorithm gcra: native on: CL.THROTTLE takes no limit of 7 in 1s, of which a unit is no whole number of milliseconds; use native auto`},
			{"limit 0 1s", 1, `"limits":[{"max":0,"window":"1s"}]`, `zone api: algorithm gcra: native on: CL.THROTTLE takes no limit 0; use native auto`},
		})
}
