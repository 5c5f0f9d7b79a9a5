package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// Bans are set, listed and lifted by commands beside one Caddy, and hold on the others.
func TestBanCommands(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleetOf(t, strings.Replace(caddyrun.Sharing, "limit 1000 1h", "limit 100000 1h\nban 10m", 1))
	dir := caddyrun.Commands(t)
	run := func(line string, ok bool, want ...string) {
		t.Helper()
		stdout, stderr, was := shell(t, dir, "", "caddy sliding-window --address "+f.caddys[0].Admin+" "+line)
		if was != ok {
			t.Errorf("%s: succeeds: %t; %s%s", line, was, stdout, stderr)
		}
		for _, text := range want {
			if !regexp.MustCompile(text).MatchString(stdout + stderr) {
				t.Errorf("%s: got %s%s, want %s", line, stdout, stderr, text)
			}
		}
	}
	run("bans", true, `(?m)^Store redis .*: 0 bans\.$`)
	run("ban set --zone api --key anna --ttl 1h --reason TICKET-7 --by otto", true, `(?m)^anna in zone api is banned until \S+Z\.$`, `Other Caddys that share the store follow within 1 s\.`)
	run("ban set --zone api --key bert", true)
	f.everywhere("banned", http.StatusTooManyRequests, "anna", "bert")
	run("bans --wide", true, `anna +59m\S+ +\S+Z +0 +\S+Z +otto +TICKET-7`, `bert +9m`)
	run("bans --zone api --format json", true, `"key":"anna"`, `"reason":"TICKET-7"`)
	run("bans --address "+f.caddys[1].Admin, true, `(?s)Caddy at `+f.caddys[0].Admin+`:\n.*2 bans.*Caddy at `+f.caddys[1].Admin+`:\n.*2 bans`)
	run("status", true, `(?m)^ ?ZONE +STORE +BANS`, `api +redis \S+ \S+ +2`)
	run("ban lift --zone api --key anna", true, `(?m)^anna in zone api is no longer banned\.$`)
	f.everywhere("lifted", http.StatusOK, "anna")
	f.everywhere("still banned", http.StatusTooManyRequests, "bert")
	run("ban set --zone api --key carl", true)
	run("ban lift --since 1h --reason release", true, "bert in zone api", "carl in zone api")
	f.everywhere("lifted by time", http.StatusOK, "bert", "carl")

	run("ban lift --zone api --key anna", false, "there is no such ban; caddy sliding-window bans lists them")
	run("ban lift --since 25:00", false, "--since: must be a time as 2026-12-31T23:59:59Z")
	run("ban lift --all", false, "--zone: required; caddy sliding-window zones lists the zones")
	run("ban set --zone api", false, "at least one of the flags")
	run("ban set --zone api --key anna --ttl 400d", false, "--ttl: must be a duration from 1s to 366d")
	run("bans --format nft", false, "--zone: required with format nft, which is of one zone")
	run("bans --zone api --format nft", false, "--zone: its key is {header.X-Key}, and no address")
}

// The addresses of a zone are exported for the kernel as it sees them: not those that proxies say.
func TestExportKnowsProxies(t *testing.T) {
	const zones = "route {\nsliding_window {\nzone logins {\nlimit 2 1h\nban 10m\n}\nzone remote {\nkey {remote_host}\nlimit 2 1h\nban 10m\n}\n}\nrespond ok\n}"
	c := newControlled(t, "", zones)
	if status, text := c.ask(http.MethodPost, "/sliding_window/bans/set", "application/json", `{"zone":"logins","key":"192.0.2.1","ttl":"1h"}`); status != http.StatusOK {
		t.Fatal(text)
	}
	const exported = "add table inet sliding_window\n" +
		"add set inet sliding_window sw4_logins { type ipv4_addr; flags interval, timeout; }\nflush set inet sliding_window sw4_logins\n" +
		"add element inet sliding_window sw4_logins {\n\t192.0.2.1 timeout SECONDSs,\n}\n" +
		"add set inet sliding_window sw6_logins { type ipv6_addr; flags interval, timeout; }\nflush set inet sliding_window sw6_logins\n"
	want := func(zone string, status int, text string) {
		t.Helper()
		got, body := c.ask(http.MethodGet, "/sliding_window/bans?format=nft&zone="+zone, "", "")
		if body = regexp.MustCompile(`\b3\d{3}s`).ReplaceAllString(body, "SECONDSs"); got != status || !strings.HasPrefix(body, text) {
			t.Errorf("%s: got %d %s, want %d %s", zone, got, body, status, text)
		}
	}
	want("logins", http.StatusOK, exported)
	if err := c.load("servers {\ntrusted_proxies static private_ranges\n}", zones); err != nil {
		t.Fatal(err)
	}
	want("logins", http.StatusConflict, `{"error":"zone: its key is {client_ip}, and a server has trusted_proxies`)
	want("remote", http.StatusOK, "add table")
}

// docs/bans.service runs a command that works, and docs/bans.nft has the sets that the command fills.
func TestBansForTheKernel(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	site := caddyrun.FreeAddress(t)
	p := caddyrun.Start(t, "{\n\tadmin {admin}\n\tpersist_config off\n\tauto_https off\n}\nhttp://"+site+" {\n\trespond /healthz ok\n\tsliding_window {\n\t\tzone logins {\n\t\t\tlimit 5 15m\n\t\t\tban 10m\n\t\t}\n\t}\n}\n", site)
	dir := caddyrun.Commands(t)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), fmt.Appendf(nil, "{\n\tadmin %s\n}\n", p.Admin), 0o600); err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ExecStart=/bin/bash -o pipefail -c '(.*) \| nft -f -'$`).FindStringSubmatch(readFile(t, "docs/bans.service"))
	if line == nil {
		t.Fatal("docs/bans.service pipes nothing to nft")
	}
	stdout, stderr, ok := shell(t, dir, "", line[1])
	if !ok {
		t.Fatalf("%s: %s", line[1], stderr)
	}
	sets := func(text, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1]+" "+m[2]+" "+m[3])
		}
		return names
	}
	filled := sets(stdout, `add set inet sliding_window (\S+) \{ type (\S+); flags (.*); \}`)
	if made := sets(readFile(t, "docs/bans.nft"), `set (\S+) \{\s+type (\S+)\s+flags (.*)\s+\}`); !slices.Equal(made, filled) || len(made) != 2 {
		t.Errorf("docs/bans.nft has the sets %q, and the command fills %q", made, filled)
	}
	for name, want := range map[string]string{"docs/bans.nft": "ip saddr @sw4_logins drop", "docs/bans.timer": "\nOnUnitInactiveSec=5s\n"} {
		if !strings.Contains(readFile(t, name), want) {
			t.Errorf("%s lacks %q", name, want)
		}
	}
}
