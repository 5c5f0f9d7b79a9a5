package replay_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

// randomConfig returns a Caddyfile with zones of any kind. Back ends are those that answer 299.
func randomConfig(rng *rand.Rand) string {
	zones := 0
	block := func(n int) string {
		var b strings.Builder
		b.WriteString("sliding_window {\n")
		for range n {
			zones++
			b.WriteString(randomZone(rng, fmt.Sprintf("zone%d", zones)))
		}
		b.WriteString("}\n")
		return b.String()
	}
	site := block(1 + rng.IntN(2))
	if rng.IntN(2) == 0 {
		site = "map {header.X-Plan} {tenant} {most} {\n gold rich 9\n silver {header.X-User} 5\n default poor 2\n}\n" + site
	} else {
		site = "vars tenant {query.u}\nmap {header.X-Plan} {tenant} {most} {\n default {vars.tenant} 3\n}\n" + site
	}
	if rng.IntN(2) == 0 {
		site += "handle_path /api/* {\n" + block(1+rng.IntN(2)) + "respond 299\n}\n"
	}
	if rng.IntN(3) == 0 {
		site += "handle /static/* {\nrespond 299\n}\nhandle {\n" + block(1) + "respond 299\n}\n"
	}
	if rng.IntN(3) == 0 {
		site += "@post method POST\nroute @post {\nrewrite /posted{uri}\n" + block(1) + "}\n"
	}
	if rng.IntN(4) == 0 {
		site += "handle_errors {\n@denied expression {err.status_code} == 429\nhandle @denied {\n" + block(1) + "respond \"slower\" 429\n}\n}\n"
	}
	named := ""
	if rng.IntN(4) == 0 {
		named = "&(limited) {\n" + block(1) + "}\n"
		site = "invoke limited\n" + site
	}
	address := pick(rng, ":8080", "http://localhost:8080", "http://localhost:8080, http://example.org:8080")
	if rng.IntN(4) == 0 {
		address = "http://localhost:8080"
		named += "http://example.org:8080 {\nlog\n" + block(1) + "respond 299\n}\n"
	}
	return "{\n auto_https off\n servers {\n trusted_proxies static 10.0.0.0/8\n}\n}\n" + named + address + " {\nlog\n" + site + "respond 299\n}\n"
}

// randomZone returns a zone of a Caddyfile.
func randomZone(rng *rand.Rand, name string) string {
	var lines []string
	add := func(line string) { lines = append(lines, line) }
	key := pick(rng, "{client_ip}", "{header.X-User}", "{query.u}", "{tenant}", "all", "\"{client_ip} {header.X-User}\"", "{http.request.uri.path.0}", "{remote_host}")
	add("key " + key)
	algorithm := pick(rng, "zset", "log", "gcra", "gcra {\n burst 3\n}", "slices {\n count 4\n}", "slices {\n count 6\n weighted\n}", "slices {\n size 1s\n}", "stream")
	algorithms := strings.HasPrefix(algorithm, "slices {\n size")
	add("algorithm " + algorithm)
	windows := []string{"2s", "5s", "12s", "30s"}
	rng.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
	limits := 1 + rng.IntN(3)
	if algorithms {
		limits = 1
	}
	dynamic := false
	for i, window := range windows[:limits] {
		most := fmt.Sprint(1 + rng.IntN(4)*(i+1))
		if rng.IntN(5) == 0 {
			most, dynamic = "{most}", true
		}
		add("limit " + most + " " + window)
	}
	if dynamic {
		add("fallback 2 7s")
	}
	if rng.IntN(4) == 0 {
		add("concurrent " + pick(rng, "1", "2", "{header.X-Cost} {\n fallback 2\n}"))
	}
	if rng.IntN(3) == 0 {
		add("cost " + pick(rng, "2", "{header.X-Cost}"))
	}
	if rng.IntN(3) == 0 {
		add("match " + pick(rng, "path /login /api/*", "method POST", "header X-Plan gold", "query u=a", "not path /login", "expression {header.X-Plan} == 'gold' || {path} == '/login'"))
	}
	if rng.IntN(3) == 0 {
		add("empty_key " + pick(rng, "skip", "deny", "shared"))
	}
	if rng.IntN(4) == 0 {
		add("fold_case")
	}
	switch {
	case rng.IntN(6) == 0 && !strings.HasPrefix(algorithm, "gcra"):
		add("settle header X-Units")
	case rng.IntN(3) == 0 && !strings.HasPrefix(algorithm, "gcra"):
		add("count_if " + pick(rng, "status 401", "status 4xx 5xx", "header X-Answer bad"))
	case rng.IntN(4) == 0 && key != "all":
		add("enforce " + pick(rng, "shadow", "50%"))
	case rng.IntN(6) == 0:
		add("enforce shadow")
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "enforce") }) && rng.IntN(4) == 0 {
		add("enforce mark")
	}
	if key != "all" && !strings.HasPrefix(key, "{http.request.uri") && rng.IntN(3) == 0 {
		add("ban " + pick(rng, "2s", "5s {\nafter 2 in 10s\nfactor 1.5\nmax 8s\n}", "4s {\nstatus 403\nsilent\nhalve 10s\nexcept path /login\n}", "10s {\nexcept not header X-Plan gold\n}"))
	}
	return "zone " + name + " {\n" + strings.Join(lines, "\n") + "\n}\n"
}

// randomTraces returns traces of 30 requests, a day apart from each other. No two requests start at one time.
func randomTraces(rng *rand.Rand, n int) (all []planned) {
	at := int64(1_700_000_000_000)
	for range n {
		at += 24 * 3600 * 1000
		now := at
		for range 30 {
			now += 1 + rng.Int64N(900)
			all = append(all, randomRequest(rng, now))
		}
	}
	return all
}

// randomRequest returns a request that starts at a time.
func randomRequest(rng *rand.Rand, start int64) planned {
	p := planned{
		start: start, end: start + 1 + rng.Int64N(3000), method: pick(rng, "GET", "GET", "POST"), host: pick(rng, "localhost:8080", "localhost:8080", "example.org:8080"),
		uri:    pick(rng, "/", "/login", "/login?u=a", "/api/v1?u=b", "/api/", "/static/x.css", "/a%2Fb?u=a&u=c", "/?u=%20A"),
		remote: pick(rng, "192.0.2.1:1000", "192.0.2.2:1001", "[2001:db8::1]:1000", "[2001:db8::2]:1000", "10.0.0.1:99"),
		header: http.Header{"X-Status": {pick(rng, "200", "200", "401", "404", "500", "204")}},
	}
	if rng.IntN(4) == 0 {
		p.end = start + 1
	}
	for _, field := range [][]string{
		{"X-User", "anna", "Anna ", "bob"}, {"X-Plan", "gold", "silver"}, {"X-Cost", "0", "3", "many"}, {"X-Kind", "bad", "good"}, {"X-Spent", "0", "2", "5", "-"},
		{"X-Forwarded-For", "198.51.100.7", "198.51.100.8"},
	} {
		if rng.IntN(3) > 0 {
			p.header.Set(field[0], pick(rng, field[1:]...))
		}
	}
	return p
}
