package e2e_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/stores"
)

// Mistakes in JSON that was written by hand are refused with the path of the field, and with what to write.
func TestJSONMistakes(t *testing.T) {
	const zone, limit = `"zones":[{"name":"api",%s}]`, `"limits":[{"max":5,"window":"1m"}],`
	type mistake struct{ written, want string }
	check := func(format string, mistakes []mistake) {
		t.Helper()
		for _, m := range mistakes {
			document := fmt.Sprintf(format, m.written)
			config := []byte(document)
			if strings.HasPrefix(format, `"`) {
				config = handlerConfig(t, `{"handler":"sliding_window",`+document+`}`)
			}
			err := validate(t, config)
			if err == nil || !strings.Contains(err.Error(), m.want) || strings.Contains(err.Error(), "json: ") || strings.Contains(err.Error(), "Go ") {
				t.Errorf("%s\ngot  %v\nwant %s", document, err, m.want)
			}
		}
	}
	check(zone, []mistake{
		{`"limit":{"max":5,"window":"1m"}`, `zone api: zones[0].limit is unknown; write "limits": [{"max": 5, "window": "1m"}]`},
		{`"limit":"100 1m"`, `zone api: zones[0].limit is unknown; write "limits": [{"max": 100, "window": "1m"}]`},
		{`"limits":{"max":5,"window":"1m"}`, `zone api: zones[0].limits is a list: [{"max": 5, "window": "1m"}]`},
		{`"limits":["100/1m"]`, `zone api: zones[0].limits[0] is an object: {"max": 100, "window": "1m"}`},
		{`"limits":[5,"1m"]`, `zone api: zones[0].limits[0] is an object, such as {"max": 100, "window": "1m"}`},
		{`"limits":[{"max":true,"window":"1m"}]`, `zone api: zones[0].limits[0].max: true is neither a number nor a string; write 100`},
		{`"limits":[{"max":5,"window":["1m"]}]`, `zone api: zones[0].limits[0].window: ["1m"] is neither a number nor a string; write "1m"`},
		{`"limits":[{"max":5,"window":"1m","burst":5}]`, `zone api: zones[0].limits[0].burst is unknown; write it in zones[0].algorithm`},
		{`"limits":[{"events":5,"window":"1m"}]`, `zone api: zones[0].limits[0].events is unknown; write "max": 5`},
		{`"max_events":5,"window":"1m"`, `zone api: zones[0].max_events is unknown; write "limits", such as [{"max": 100, "window": "1m"}, {"max": "{http.vars.daily}", "window": "1d"}]`},
		{limit + `"algorithm":"log"`, `zone api: zones[0].algorithm is an object: {"name": "log"}`},
		{limit + `"algorithm":["gcra"]`, `zone api: zones[0].algorithm is an object: {"name": "gcra"}`},
		{limit + `"algorithm":{"type":"gcra"}`, `zone api: zones[0].algorithm.type is unknown; use name, count, size, weighted,`},
		{limit + `"algorithm":{"name":"slices","weighted":"yes"}`, `zone api: zones[0].algorithm.weighted is true or false: true`},
		{limit + `"algorithm":{"name":"slices","layers":"10s 1s"}`, `zone api: zones[0].algorithm.layers is an object: {"coarse": "10s", "fine": "1s"}`},
		{limit + `"algorithm":{"name":"stream","fields":{"name":"a","value":"b"}}`, `zone api: zones[0].algorithm.fields is a list: [{"name": "a", "value": "b"}]`},
		{limit + `"burst":5`, `zone api: zones[0].burst is unknown; write it in zones[0].algorithm`},
		{limit + `"status":403`, `zone api: zones[0].status is unknown; write it in the handler`},
		{limit + `"match":{}`, `zone api: zones[0].match is a list, such as [{"path": ["/api/*"]}]`},
		{limit + `"match":{"path":["/a"]}`, `zone api: zones[0].match is a list: [{"path": ["/a"]}]`},
		{limit + `"match":[{"path":"/a"}]`, `zone api: zones[0].match[0].path is a list: ["/a"]`},
		{limit + `"match":[{"metod":["GET"]}]`, `zone api: zones[0].match[0].metod is unknown; write "method"`},
		{limit + `"key":5`, `zone api: zones[0].key is a string: "5"`},
		{limit + `"fold_case":"true"`, `zone api: zones[0].fold_case is true or false: true`},
		{limit + `"top_talkers":{}`, `zone api: zones[0].top_talkers is true or false, such as true`},
		{limit + `"ipv4_prefix":"/24"`, `zone api: zones[0].ipv4_prefix is a whole number, such as 32`},
		{limit + `"ipv6_prefix":"48"`, `zone api: zones[0].ipv6_prefix is a whole number: 48`},
		{limit + `"lease":50`, `zone api: zones[0].lease is an object: {"units": 50}`},
		{limit + `"enforce":25`, `zone api: zones[0].enforce is a string: "25%"`},
		{limit + `"enforce":false`, `zone api: zones[0].enforce is a string: "shadow"`},
		{limit + `"count_if":401`, `zone api: zones[0].count_if is an object: {"status_code": [401]}`},
		{limit + `"count_if":{"status":[401]}`, `zone api: zones[0].count_if.status is unknown; `},
		{limit + `"count_if":{"status_code":401}`, `zone api: zones[0].count_if.status_code is a list: [401]`},
		{limit + `"settle":"openai"`, `zone api: zones[0].settle is an object: {"usage": "openai"}`},
		{limit + `"settle":{"usage":"openai","weight":{"input":"2"}}`, `zone api: zones[0].settle.weight.input is a number: 2`},
		{limit + `"settle":{"usage":"openai","reserve_json":"max_tokens"}`, `zone api: zones[0].settle.reserve_json is a list: ["max_tokens"]`},
		{limit + `"alert":{"denied":10}`, `zone api: zones[0].alert.denied is a string: "10%"`},
		{limit + `"load":{"cpu":["70%","95%"]}`, `zone api: zones[0].load.cpu is an object: {"lo": "70%", "hi": "95%"}`},
		{limit + `"fallback":true`, `zone api: zones[0].fallback is an object, such as {"max": 1000, "window": "1d"}`},
		{limit + `"dry_run":true`, `zone api: zones[0].dry_run is unknown; write "enforce": "shadow"`},
	})
	check(`"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}]}],%s`, []mistake{
		{`"zone":{"name":"b"}`, `zone is unknown; write "zones": [{"name": "b"}]`},
		{`"jitter":"20%"`, `jitter is a number: 0.2`},
		{`"status":"503"`, `status is a whole number: 503`},
		{`"status":429.5`, `status is a whole number, such as 429`},
		{`"log_key":1`, `log_key is true or false: true`},
		{`"headers":["ietf"]`, `headers is a string: "ietf"`},
		{`"on_error":{"share":true}`, `on_error is a string, such as "local"`},
		{`"limits":[{"max":5,"window":"1m"}]`, `limits is unknown; write it in zones[]`},
		{`"store":"memory"`, `store is an object: {"module": "memory"}`},
		{`"store":"redis://u:secret@h"`, `store is an object, such as {"module": "redis", ...}`},
		{`"store":{"address":["h:1"]}`, `store has no module; write {"module": "redis", ...}`},
		{`"store":{"module":"memory","max_keys":"many"}`, `store.max_keys is a whole number`},
		{`"store":{"module":"redis","address":"h:6379"}`, `store.address is a list: ["h:6379"]`},
		{`"store":{"module":"redis","password":12345}`, `store.password is a string, such as "{env.REDIS_PASSWORD}"`},
		{`"store":{"module":"redis","hash_keys":"0123456789abcdef"}`, `store.hash_keys is a list, such as ["{env.REDIS_HASH_KEYS}"]`},
		{`"store":{"module":"redis","timeout":"soon"}`, `store.timeout: time: invalid duration "soon"; write "100ms"`},
		{`"store":{"module":"redis","tls":true}`, `store.tls is an object, such as {"ca": "/etc/caddy/redis/ca.pem", ...}`},
		{`"store":{"module":"redis","host":"h"}`, `store.host is unknown; write "address": ["h"]`},
		{`"store":{"module":"redis","skip_verify":true}`, `store.skip_verify is unknown; write "tls", such as {"ca": "/etc/caddy/redis/ca.pem", ...}`},
		{`"store":{"module":"redis","max_keys":5}`, `store.max_keys is unknown; write store memory, which has it`},
		{`"store":{"module":"redis","pass":"hunter2"}`, `store.pass is unknown; write "password", such as "{env.REDIS_PASSWORD}"`},
		{`"store":{"module":"redis","poolsize":5}`, `store.poolsize is unknown; write "pool_size": 5`},
	})
	check(`{"apps":{"sliding_window":%s}}`, []mistake{
		{`"redis"`, `sliding_window is an object`},
		{`{"share":"yes"}`, `share is true or false: true`},
		{`{"stores":{"module":"memory"}}`, `stores is unknown; write "store", such as {"module": "redis", ...}`},
		{`{"store":{"module":"redis","db":"3"}}`, `store.db is a whole number: 3`},
	})
}

// The example in the error messages is the one of docs/json.md, and has every option.
func TestJSONExample(t *testing.T) {
	example := readFile(t, "internal/config/jsonform/example.json")
	if !strings.Contains(readFile(t, "docs/json.md"), "```json\n"+example+"```\n") {
		t.Error("docs/json.md does not show internal/config/jsonform/example.json as it is")
	}
	for _, v := range []any{
		slidingwindow.Handler{}, slidingwindow.Zone{}, slidingwindow.Limit{}, slidingwindow.Algorithm{}, slidingwindow.Layers{},
		slidingwindow.Adaptive{}, slidingwindow.Field{}, slidingwindow.Lease{}, slidingwindow.Alert{}, slidingwindow.Ban{}, slidingwindow.Settle{},
		slidingwindow.Weight{}, slidingwindow.Load{}, slidingwindow.LoadRange{}, stores.Redis{}, stores.TLS{},
	} {
		for name := range fieldsOf(reflect.TypeOf(v)) {
			switch name {
			case "url", "master", "sentinel_username", "sentinel_password", "written_at":
				continue // not with the others
			}
			if !strings.Contains(example, `"`+name+`":`) {
				t.Errorf("%T: the example does not have %q", v, name)
			}
		}
	}
}
