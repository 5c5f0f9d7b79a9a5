package e2e_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

const fleetZones = `{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://{site} {
	sliding_window {
		zone shared {
			match {
				not path /healthz
			}
			key {header.X-Key}
			limit 4 1h
			top_talkers
		}
		zone {own} {
			limit 1000 1h
		}
		store redis {
			address {redis}
			timeout 10s
		}
	}
	respond ok
}
`

// With several addresses, zones adds up what Caddys have decided, top merges their keys, and status and inspect show
// each. A Caddy that does not answer is named, and the command fails after it has shown the others.
func TestFleetOnTheCommandLine(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	server := redistest.Start(t)
	client := caddyrun.NewClient(t)
	dir := caddyrun.Commands(t)
	all, admins, last := "", []string{}, (*caddyrun.Process)(nil)
	for _, own := range []string{"own", "own", "another"} {
		site := caddyrun.FreeAddress(t)
		process := caddyrun.Start(t, strings.NewReplacer("{site}", site, "{redis}", server.Addr, "{own}", own).Replace(fleetZones), site)
		last, admins = process, append(admins, process.Admin)
		all += " --address " + process.Admin
		for range 3 {
			_ = caddyrun.MustGet(t, client, site, "anna")
		}
		_ = caddyrun.MustGet(t, client, site, "of "+site)
	}
	nowhere := caddyrun.FreeAddress(t)
	run := func(line string, wantOK bool, want ...string) string {
		t.Helper()
		stdout, stderr, ok := shell(t, dir, "", "caddy sliding-window "+line)
		for _, want := range want {
			if !regexp.MustCompile(want).MatchString(stdout) {
				t.Errorf("%s: want %s in\n%s%s", line, want, stdout, stderr)
			}
		}
		if ok != wantOK || !wantOK && !strings.Contains(stderr, nowhere) {
			t.Errorf("%s: success %v, want %v; %s", line, ok, wantOK, stderr)
		}
		return stdout
	}
	summed := `(?m)^ shared +5 +0 +7 `
	run("zones --address "+admins[0], true, "Decisions of this Caddy, since it started:")
	run("zones"+all, true, "Decisions of 3 Caddys, since each started:", summed, `(?m)^ own .*`+admins[0]+", "+admins[1]+" *$", `(?m)^ another .*`+admins[2]+" *$")
	run("zones"+all+" --address "+nowhere, false, "Decisions of 3 Caddys", summed)
	run("top"+all, true, `Zone shared, redis .*, 3 Caddys: 5 requests denied since 20`, `(?m)^ anna +5 +0 +100.0%`)
	run("top --by charged --count 1"+all, true, `3 Caddys: 7 units charged`, `(?m)^ anna +4 +0 +57.1%`)
	run("top --zone shared --address "+nowhere+all, false, `(?m)^ anna +5 +0 `)
	run("status"+all, true, "Caddy at "+admins[0]+":\nsliding_window ", "Caddy at "+admins[2]+":\nsliding_window ")
	run("status --address "+nowhere+all, false, "Caddy at "+admins[0])
	run("inspect --zone shared --key anna"+all, true, "Caddy at "+admins[1]+":\nThe next request of anna in zone shared, which costs 1, would be denied.")
	run("zones"+all+all, true, "Decisions of 3 Caddys", summed)
	for _, command := range []string{"inspect", "override set"} {
		if stdout, _, _ := shell(t, dir, "", "caddy __complete sliding-window "+command+" --address "+admins[2]+" --zone ''"); !strings.HasPrefix(stdout, "another\nshared\n") {
			t.Errorf("%s completes %q, want the zones", command, stdout)
		}
	}
	last.Stop()
	if _, stderr, ok := shell(t, dir, "", "caddy sliding-window zones"+all); ok || !strings.Contains(stderr, "1 of 3 Caddys did not answer:\nasked the admin endpoint at "+last.Admin+": no answer within 10s") {
		t.Errorf("one is stopped: success %v, %s", ok, stderr)
	}
	last.Cont()
	lines := run("zones --json --address "+nowhere+all, false)
	answers, failures := 0, 0
	for line := range strings.Lines(lines) {
		var reply struct {
			Address, Error string
			Answer         *struct{ Zones []any }
		}
		if err := json.Unmarshal([]byte(line), &reply); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if reply.Answer != nil && len(reply.Answer.Zones) == 2 {
			answers++
		} else if reply.Address == nowhere && reply.Error != "" {
			failures++
		}
	}
	if answers != 3 || failures != 1 {
		t.Errorf("--json: %d answers and %d failures in\n%s", answers, failures, lines)
	}
	if _, stderr, ok := shell(t, dir, "", "caddy sliding-window reset --zone shared --key anna"+all); ok || !strings.Contains(stderr, "--address: given more than once, and this command tells one Caddy") {
		t.Errorf("reset at several: success %v, %s", ok, stderr)
	}
}
