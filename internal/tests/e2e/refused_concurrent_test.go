package e2e_test

import "testing"

func TestRefusedConcurrent(t *testing.T) {
	alone := func(option string) string {
		return `zone api: concurrent and ` + option + ` cannot be combined in a zone without limit: a request holds one slot until its answer is over, and nothing else is counted; add limit <max> <window>, or take ` + option + ` out`
	}
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"concurrent", 0, ``, `zone api: an argument is missing after 'concurrent'; write concurrent <max>, such as concurrent 4; is a {$VARIABLE} empty?`},
			{"concurrent \"\"", 0, ``, `zone api: concurrent "": the value is empty; write one, or take the line out`},
			{"concurrent 4 5", 0, ``, `zone api: wrong argument count or unexpected line ending after '4'; write concurrent <max>, such as concurrent 4`},
			{"concurrent -1", 0, `"concurrent":{"max":-1}`, `zone api: concurrent -1: must be from 0 to 600479950316`},
			{"concurrent 600479950317", 0, `"concurrent":{"max":600479950317}`, `zone api: concurrent 600479950317: must be from 0 to 600479950316`},
			{"concurrent many", 0, `"concurrent":{"max":"many"}`, `zone api: concurrent "many" is not a whole number`},
			{"limit 1 1m\nconcurrent 1.5", 1, `"limits":[{"max":1,"window":"1m"}],"concurrent":{"max":1.5}`, `zone api: concurrent "1.5" is not a whole number`},
			{"concurrent {header.X-N}", 0, `"concurrent":{"max":"{http.request.header.X-N}"}`, `zone api: concurrent {http.request.header.X-N}: holds a placeholder, so a fallback is required; write fallback 4, or another number, in the block of concurrent`},
			{"concurrent {header.X-N} {\nfallback -4\n}", 0, `"concurrent":{"max":"{http.request.header.X-N}","fallback":-4}`, `zone api: concurrent fallback -4: must be from 0 to 600479950316`},
			{"concurrent {header.X-N} {\nfallback {header.X-N}\n}", 0, `"concurrent":{"max":"{http.request.header.X-N}","fallback":"{http.request.header.X-N}"}`, `zone api: concurrent fallback "{http.request.header.X-N}" is not a whole number`},
			{"concurrent 4 {\nfallback 4\n}", 0, `"concurrent":{"max":4,"fallback":4}`, `zone api: concurrent fallback 4: max has no placeholder; take fallback out`},
			{"concurrent 4 {\nlease 1s\n}", 0, `"concurrent":{"max":4,"lease":"1s"}`, `zone api: concurrent lease 1s: must be from 2s to 10m; a request may be open for longer, for its Caddy renews the lease`},
			{"concurrent 4 {\nlease 11m\n}", 0, `"concurrent":{"max":4,"lease":"11m"}`, `zone api: concurrent lease 11m: must be from 2s to 10m; a request may be open for longer, for its Caddy renews the lease`},
			{"concurrent 4 {\nlease long\n}", 0, `"concurrent":{"max":4,"lease":"long"}`, `zone api: concurrent lease "long" is not a duration, such as 90s, 5m or 1d`},
			{"concurrent 4 {\nlease\n}", 1, ``, `zone api: lease takes one value: write lease 15s`},
			{"concurrent 4 {\nhold header\n}", 0, `"concurrent":{"max":4,"hold":"header"}`, `zone api: concurrent hold "header" is unknown; use one of body, status`},
			{"concurrent 4 {\nhold body\nhold status\n}", 2, ``, `zone api: hold is given twice; keep one`},
			{"concurrent 4 {\nholds body\n}", 1, ``, `zone api: unrecognized subdirective "holds" of concurrent; write hold`},
			{"concurrent 4\nconcurrent 5", 1, ``, `zone api: concurrent is given twice; keep one`},

			{"cost 2\nconcurrent 4", 1, `"cost":2,"concurrent":{"max":4}`, alone("cost")},
			{"algorithm log\nconcurrent 4", 1, `"algorithm":{"name":"log"},"concurrent":{"max":4}`, alone("algorithm")},
			{"concurrent 4\npack 1000", 0, ``, alone("pack")},
			{"concurrent 4\nlease 10", 0, `"lease":{"units":10},"concurrent":{"max":4}`, alone("lease")},
			{"concurrent 4\nfallback 4 1m", 0, `"fallback":{"max":4,"window":"1m"},"concurrent":{"max":4}`, alone("fallback")},
			{"concurrent 4\ncount_if status 401", 0, `"count_if":{"status_code":[401]},"concurrent":{"max":4}`, alone("count_if")},
			{"concurrent 4\nsettle usage openai", 0, `"settle":{"usage":"openai"},"concurrent":{"max":4}`, alone("settle")},
			{"concurrent 4\nload cpu 70% 95%", 0, `"load":{"cpu":{"lo":"70%","hi":"95%"}},"concurrent":{"max":4}`, alone("load")},
			{"limit 9 1m\nlease 5\nconcurrent 4", 2, `"limits":[{"max":9,"window":"1m"}],"lease":{"units":5},"concurrent":{"max":4}`, `zone api: concurrent and lease cannot be combined, for a request that counts in several places takes no lease; take out one of them`},
			{"limit 10 1m\nconcurrent 4\nalgorithm gcra {\nnative on\n}", 1, `"limits":[{"max":10,"window":"1m"}],"algorithm":{"name":"gcra","native":"on"},"concurrent":{"max":4}`, `zone api: concurrent algorithm gcra: native on: the zone counts requests at the same time, too; use native auto`},
		})
}
