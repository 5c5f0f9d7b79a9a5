package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// operated is a Caddyfile with the zones of docs/operating.md.
const operated = `{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://{site} {
	handle /healthz {
		respond ok
	}
	map {header.X-Api-Key} {customer} {per_minute} {per_day} {
		b7e1c0d2 anna 600 100000
		default "" "" ""
	}
	sliding_window {
		zone plan {
			key {customer}
			empty_key skip
			limit {per_minute} 1m
			limit {per_day} 1d
			fallback 2 1m
		}
		zone per_client {
			key {header.X-Client}
			limit 2 1h
			top_talkers
		}
		zone per_user {
			key {header.X-Tenant}/{header.X-User}
			limit 2 1h
		}
		zone per_token {
			key {header.X-Token}
			limit 2 1h
		}
		zone logins {
			key {header.X-Login}
			empty_key skip
			limit 2 1h
			ban 10m
		}
		zone chats {
			key {header.X-Chat}
			empty_key skip
			concurrent 4
		}
	}
	respond ok
}
`

// shell runs a command line in which caddy is the one that is tested, in a directory with a Caddyfile.
func shell(t *testing.T, dir, stdin, line string) (stdout, stderr string, ok bool) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TOKEN=s3cret-token")
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	return out.String(), problems.String(), err == nil
}

// operate runs Caddy with the zones of docs/operating.md, and returns a directory for shell.
func operate(t *testing.T) (dir string, process *caddyrun.Process) {
	t.Helper()
	site := caddyrun.FreeAddress(t)
	caddyfile := strings.ReplaceAll(operated, "{site}", site)
	process = caddyrun.Start(t, caddyfile, site)
	forgetOverrides := func() { // which Caddy's storage keeps for the next test
		process.Tell(t, http.MethodPost, "/sliding_window/overrides/replace", "application/json", `{"records":[]}`)
	}
	forgetOverrides()
	t.Cleanup(forgetOverrides)
	dir = caddyrun.Commands(t)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(strings.ReplaceAll(caddyfile, "{admin}", process.Admin)), 0o600); err != nil {
		t.Fatal(err)
	}
	client := caddyrun.NewClient(t)
	for range 2 { // all of them have no header: they use up the keys that are empty
		_ = caddyrun.MustGet(t, client, site, "")
	}
	return dir, process
}

// siteOf returns the address of the site that operate runs.
func siteOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
	if err != nil {
		t.Fatal(err)
	}
	caddyfile := string(text)
	return strings.TrimPrefix(strings.Fields(caddyfile[strings.Index(caddyfile, "http://"):])[0], "http://")
}

// endless matches commands that go on until they are interrupted.
var endless = regexp.MustCompile(`--watch|sliding-window page`)

// TestOperating runs every command of docs/operating.md.
func TestOperating(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	dir, process := operate(t)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(readFile(t, "docs/operating.md"), -1)
	if len(blocks) < 7 {
		t.Fatalf("docs/operating.md has %d commands", len(blocks))
	}
	process.Tell(t, http.MethodPost, "/sliding_window/bans/set", "application/json", `{"zone":"logins","key":"192.0.2.1"}`)
	for _, block := range blocks {
		line := block[1]
		line = strings.ReplaceAll(line, "https://example.com", "http://"+siteOf(t, dir)) // which has a port of its own
		if endless.MatchString(line) {
			line = "timeout --foreground --preserve-status -s INT 5 " + line
		}
		stdout, stderr, ok := shell(t, dir, "", line)
		if !ok || stdout == "" {
			t.Errorf("%s: got %q, and %q", block[1], stdout, stderr)
		}
		t.Logf("$ %s%s", block[1], stdout)
	}
	if log := process.Log.String(); strings.Contains(log, "s3cret-token") || strings.Contains(log, "192.0.2.1") {
		t.Errorf("the log has a key:\n%s", log)
	}
}

// TestCommands holds what commands print, where they find the endpoint, and how they fail.
func TestCommands(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	dir, process := operate(t)
	nowhere, site := caddyrun.FreeAddress(t), siteOf(t, dir)
	for _, test := range []struct {
		line, stdin string
		ok          bool
		out         []string // of stdout, or of stderr where it fails
	}{
		{"zones", "", true, []string{"ZONE", "per_client", "2 in 1h", "{header.X-Tenant}/{header.X-User}", "zset"}},
		{"status", "", true, []string{"sliding_window ", "memory", "ok", "OVERRIDES", "none"}},
		{"zones --address " + process.Admin, "", true, []string{"per_client"}},
		{"zones --config Caddyfile --adapter caddyfile", "", true, []string{"per_client"}},
		{"inspect --zone per_client --key ''", "", true, []string{`The next request of "" in zone per_client, which costs 1, would be denied.`, "Decided by memory; store memory is ok.", "2 in 1h", "config"}},
		{"inspect --zone per_client --key -", "192.0.2.1\n", true, []string{"192.0.2.1 in zone per_client, which costs 1, would pass."}},
		{`inspect --zone per_client --key "$(printf '\033[2J')"`, "", true, []string{`"\x1b[2J"`}},
		{"inspect --zone per_user --value acme --value anna", "", true, []string{"4:acme/4:anna"}},
		{"inspect --zone per_user --value '' --value ''", "", true, []string{"would be denied"}},
		{"reset --zone per_client --key ''", "", true, []string{`"" in zone per_client was reset.`}},
		{"inspect --zone per_client --key ''", "", true, []string{"would pass"}},
		{"enforce shadow --zone per_client --ttl 1h --reason test", "", true, []string{"per_client", "shadow until 20"}},
		{"zones", "", true, []string{"shadow until 20"}},
		{"inspect --zone per_client --key 192.0.2.1", "", true, []string{"Enforced: shadow."}},
		{"enforce config --all", "", true, []string{"per_client", "per_user", "on"}},
		{"enforce shadow --zone per_client", "", false, []string{"--ttl: required; say how long it holds, such as 1h"}},
		{"enforce on --zone per_client", "", false, []string{"--ttl: required", "for good, write enforce on in the configuration, or take the line out"}},
		{"enforce 10 --zone per_client --ttl 1h", "", true, []string{"per_client", "10% until 20"}},
		{"enforce shadow --zone per_client --ttl 31d", "", false, []string{"--ttl: must be a duration of 30d at most"}},
		{"enforce off --zone per_client --ttl 1h", "", false, []string{`mode: zone per_client: enforce "off" is unknown; write shadow`}},
		{"enforce shadw --all --ttl 1h", "", false, []string{"mode: must be on, shadow, mark, config, or a whole percentage such as 25%"}},
		{"enforce shadow --ttl 1h", "", false, []string{"zone", "all"}},
		{"inspect --zone plan --key anna", "", true, []string{"Whether the next request of anna in zone plan, which costs 1, passes cannot be said: the limit {per_minute} in 1m and the limit {per_day} in 24h need a request.", "--url", "{per_minute} in 1m", "needs a request"}},
		{"inspect --url http://" + site + "/a?b --remote 192.0.2.1 --header 'X-Api-Key: b7e1c0d2' --header x-client:anna --method POST", "", true, []string{"POST http://" + site + "/a?b from 192.0.2.1 would be denied by zone per_user, per_token.", "600 in 1m", "100000 in 24h", "plan"}},
		{"inspect --url http://" + site + " --remote 192.0.2.1 --header -", "X-Api-Key: b7e1c0d2\r\nX-Tenant: a\nX-User: b\nX-Client: c\nX-Token: d", true, []string{"GET http://" + site + " from 192.0.2.1 would pass.", "1:a/1:b"}},
		{"inspect --key carmen", "", false, []string{"--zone: required, with --key or --value; or ask with a request: --url and --remote"}},
		{"inspect --zone per_client --url http://carmen --remote ::1", "", false, []string{"--zone: cannot be combined with --url", "leave --zone out"}},
		{"inspect --key carmen --url http://carmen", "", false, []string{"--key: cannot be combined with --url"}},
		{"inspect --url http://carmen", "", false, []string{"--remote: required"}},
		{"inspect --header 'carmen: b' --remote ::1", "", false, []string{"--url: required"}},
		{"inspect --url carmen --remote ::1", "", false, []string{"--url: must begin with http:// or https:// and a host"}},
		{"inspect --url http://a --remote carmen", "", false, []string{"--remote: not an IP address"}},
		{"inspect --url http://a --remote ::1 --header carmen", "", false, []string{"--header: must be a name, a colon and a value"}},
		{"inspect --url http://a --remote ::1 --method 'car men'", "", false, []string{"--method: not a method of HTTP"}},
		{"inspect --url http://localhost:1 --remote ::1", "", false, []string{"--url: no server listens on the port"}},
		{"reset --key carmen", "", false, []string{`required flag(s) "zone" not set`}},
		{"inspect --zone carmen --key carmen", "", false, []string{`--zone: no zone of this name runs; use one of "chats", "logins", "per_client", "per_token", "per_user", "plan"; caddy sliding-window zones lists the zones`}},
		{"inspect --zone per_user --key carmen", "", false, []string{"--key: the zone's key has 2 placeholders; write --value for each, in order"}},
		{"reset --zone per_client --store carmen --key a", "", false, []string{`--store: has no zone of this name; use one of "memory"`}},
		{"override list --store carmen", "", false, []string{`--store: no zone that runs has a store of this name; use one of "memory"`}},
		{"inspect --zone per_user --key carmen --value a", "", false, []string{"key value"}},
		{"override set --zone per_client --key anna --limit 5/1m --limit '9 1h' --reason TICKET-7", "", true, []string{"Override ", " of anna in zone per_client (5 in 1m, 9 in 1h) was set, in place of 2 in 1h.", "Version "}},
		{"override set --zone per_user --value acme --value otto --factor 2 --ttl 2h", "", true, []string{"of acme, otto in zone per_user (times 2) was set."}},
		{"override set --zone per_client --key - --deny", "192.0.2.7\n", true, []string{"of 192.0.2.7 in zone per_client (deny) was set, in place of 2 in 1h.", "Warning: nothing is counted for this key now; check its spelling with inspect."}},
		{"override list", "", true, []string{"Store memory: 3 overrides, version ", "anna", "5 in 1m, 9 in 1h", "for good", "TICKET-7"}},
		{"status", "", true, []string{"ok", "3, version "}},
		{"override list --zone per_user", "", true, []string{"Store memory: 1 override,", "times 2"}},
		{"inspect --zone per_client --key anna", "", true, []string{"5 in 1m", "override", "TICKET-7"}},
		{"inspect --zone per_client --key 192.0.2.7", "", true, []string{"would be denied.", "Decided by override"}},
		{"override delete --zone per_client --key anna", "", true, []string{"of anna in zone per_client (5 in 1m, 9 in 1h) was deleted."}},
		{"override list --json > list.json && caddy sliding-window override replace list.json", "", true, []string{"Store memory has 2 overrides now; version "}},
		{"override replace -", "[]", true, []string{"Store memory has 0 overrides now"}},
		{"zones", "", true, []string{"chats", "4 at the same time"}},
		{"inspect --zone chats --key anna", "", true, []string{"anna in zone chats, which costs 1, would pass.", "4 at the same time", "config"}},
		{"override set --zone chats --key anna --concurrent 20", "", true, []string{"of anna in zone chats (20 at the same time) was set, in place of 4 at the same time."}},
		{"inspect --zone chats --key anna", "", true, []string{"20 at the same time", "override"}},
		{"override set --zone chats --key anna --limit 5/1m", "", false, []string{"--limit: the zone has no limit, only concurrent; write --concurrent, or write a limit in the zone"}},
		{"override set --zone per_client --key carmen --concurrent 5", "", false, []string{"--concurrent: the zone has no concurrent; write --limit, or write concurrent in the zone"}},
		{"override set --zone per_client --key carmen --concurrent 5 --deny", "", false, []string{"concurrent deny"}},
		{"reset --zone chats --key anna", "", true, []string{"Requests that are open hold their slots: each Caddy writes its true number again."}},
		{"override delete --zone per_client --key carmen", "", false, []string{"there is no such override; caddy sliding-window override list shows them"}},
		{"override set --zone per_client --key carmen", "", false, []string{"limit concurrent factor deny exempt"}},
		{"override set --zone per_client --key carmen --limit 5", "", false, []string{`--limit "5": must be a number and a window, as 1000/1m`}},
		{"override set --zone per_client --key carmen --deny --if-match 1-x", "", false, []string{"--if-match: the overrides have changed since they were read"}},
		{"override set --zone per_client --cidr 192.0.2.7/24 --deny", "", false, []string{"write 192.0.2.0/24"}},
		{"override set --zone per_client carmen --deny", "", false, []string{"an argument has no flag; write --key before the key"}},
		{"reset --zone per_client carmen", "", false, []string{"an argument has no flag; write --key before the key"}},
		{"override replace missing.json", "", false, []string{"missing.json"}},
		{"override replace -", "{}", false, []string{"the file holds no overrides"}},
		{"top --zone per_client", "", true, []string{"Zone per_client, memory, this Caddy: 1 request denied since 20"}},
		{"top --by charged", "", true, []string{"Zone per_client, memory, this Caddy: 2 units charged since 20", "KEY", "COUNT", "ERROR", `""`, "100.0%"}},
		{"top --by charged --json", "", true, []string{`"total":2,"keys":[{"key":"","count":2,"error":0}]}`}},
		{"top --by charged --store other", "", false, []string{"no zone keeps top talkers; write top_talkers in a zone"}},
		{"top --zone per_user", "", false, []string{"zone: keeps no top talkers; write top_talkers in it"}},
		{"top --by cost", "", false, []string{"by: must be denied or charged"}},
		{"top --count 257", "", false, []string{"count: must be from 1 to 256"}},
		{"top --address " + nowhere, "", false, []string{"asked the admin endpoint at " + nowhere}},
		{"page --listen 0.0.0.0:8080", "", false, []string{"--listen 0.0.0.0:8080: must be an address of the loopback interface, such as 127.0.0.1:8080"}},
		{"page --json", "", false, []string{"page prints the address of a page, and no table; leave --json and --wide out"}},
		{"unblock", "", false, []string{"unknown command"}},
		{"zones --address " + nowhere, "", false, []string{"asked the admin endpoint at " + nowhere, "is Caddy running", "--address"}},
		{"zones --config missing.json", "", false, []string{"finding the admin endpoint", "--address"}},
	} {
		stdout, stderr, ok := shell(t, dir, test.stdin, "caddy sliding-window "+test.line)
		text := stdout
		if !test.ok {
			text = stderr
			if strings.Contains(stderr, "carmen") {
				t.Errorf("%s: the error has the key: %s", test.line, stderr)
			}
		}
		for _, want := range test.out {
			if ok != test.ok || !strings.Contains(text, want) || strings.Contains(text, "\x1b[2J") {
				t.Errorf("%s: success %v, stdout:\n%s\nstderr:\n%s\nwant %q", test.line, ok, stdout, stderr, want)
			}
		}
	}
	stdout, stderr, _ := shell(t, dir, "", "caddy sliding-window inspect --zone per_client --key 192.0.2.1 --json")
	var i control.Inspection
	if err := json.Unmarshal([]byte(stdout), &i); err != nil || i.Zone != "per_client" || !i.Passes() || i.Limits[0].Remaining != 2 {
		t.Errorf("--json: %s%s", stdout, stderr)
	}
	for _, name := range []string{"zones", "status", "inspect", "reset", "enforce", "override set", "override list", "override delete", "override replace", "top", "page"} {
		if stdout, _, ok := shell(t, dir, "", "caddy sliding-window "+name+" --help"); !ok || !strings.Contains(stdout, "$ caddy sliding-window "+name) {
			t.Errorf("%s --help has no example:\n%s", name, stdout)
		}
	}
}

// A command fails if a part of what was asked is not done, and if its output cannot be written.
func TestCommandsDoneInPart(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	site := caddyrun.FreeAddress(t)
	process := caddyrun.Start(t, "{\n\tadmin {admin}\n}\nhttp://"+site+` {
	sliding_window {
		zone plain {
			limit 2 1h
		}
		zone logins {
			limit 2 1h
			count_if status 401
		}
	}
	respond ok
}
`, site)
	dir := caddyrun.Commands(t)
	own := " --address " + process.Admin
	stdout, stderr, ok := shell(t, dir, "", "caddy sliding-window enforce shadow --all --ttl 1h"+own)
	if !ok || !strings.Contains(stdout, "exempt until 20") || !strings.Contains(stdout, "Zone logins: lets all requests pass") || !strings.Contains(stdout, "shadow until 20") {
		t.Errorf("enforce of all: success %v\n%s%s", ok, stdout, stderr)
	}
	stdout, stderr, ok = shell(t, dir, "", "caddy sliding-window enforce 50% --all --ttl 1h"+own)
	if ok || !strings.Contains(stderr, "not changed: 1 of 2 zones") || !strings.Contains(stdout, "count_if cannot be combined") || !strings.Contains(stdout, "50% until 20") {
		t.Errorf("enforce of a part: success %v\n%s%s", ok, stdout, stderr)
	}
	if _, stderr, ok := shell(t, dir, "", "caddy sliding-window enforce config --all"+own); !ok {
		t.Errorf("enforce of all: %s", stderr)
	}
	for _, line := range []string{"zones", "status", "zones --json"} {
		if _, stderr, ok := shell(t, dir, "", "caddy sliding-window "+line+own+" >/dev/full"); ok || !strings.Contains(stderr, "no space left") {
			t.Errorf("%s on a full disk: success %v, %s", line, ok, stderr)
		}
	}
}
