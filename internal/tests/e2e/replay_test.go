package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// TestReplay replays the log that a Caddy has written: its limits would have denied what they have denied.
func TestReplay(t *testing.T) {
	dir := caddyrun.Commands(t)
	address := caddyrun.FreeAddress(t)
	log := filepath.Join(dir, "access.log")
	text := `{
	admin {admin}
}
http://` + address + ` {
	log {
		output file ` + log + `
	}
	sliding_window {
		zone per_client {
			limit 10 1h
		}
		zone logins {
			match path /login
			key {header.X-User}
			limit 2 1h
			count_if status 401
			empty_key skip
		}
	}
	respond /login 401
	respond ok
}
`
	process := caddyrun.Start(t, text, address)
	before := strings.Count(readFile(t, log), "\n")
	client := caddyrun.NewClient(t)
	denied := 0
	for range 3 {
		for _, path := range []string{"/", "/login", "/login", "/other?x=1"} {
			req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-User", "anna")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				denied++
			}
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Caddyfile", strings.ReplaceAll(text, "{admin}", process.Admin))
	lines := strings.SplitAfter(readFile(t, log), "\n")
	write("access.log", strings.Join(lines[before:], ""))
	run := func(line string, wantStatus int, want ...string) string {
		t.Helper()
		stdout, stderr, status := exitStatus(t, dir, line)
		for _, text := range want {
			if !strings.Contains(stdout+stderr, text) {
				t.Errorf("%s: want %q in\n%s%s", line, text, stdout, stderr)
			}
		}
		if status != wantStatus {
			t.Errorf("%s: exit status %d, want %d\n%s%s", line, status, wantStatus, stdout, stderr)
		}
		return stdout
	}
	var report replay.Report
	if err := json.Unmarshal([]byte(run("caddy sliding-window replay access.log --config Caddyfile --json", 0)), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Zones) != 2 {
		t.Fatalf("zones %+v", report.Zones)
	}
	both := report.Zones[0].Denied + report.Zones[1].Denied
	if int(both) != denied || int(report.Log.Were429) != denied || denied == 0 || report.Log.Requests != 12 {
		t.Errorf("the replay denies %d of %d requests, %d were; Caddy denied %d", both, report.Log.Requests, report.Log.Were429, denied)
	}
	run("caddy sliding-window replay access.log --config Caddyfile --tolerate 0.1%", 3, "denies", "more than --tolerate 0.1%")
	run("caddy sliding-window replay access.log --config Caddyfile --tolerate 100%", 0, fmt.Sprintf("%d requests were answered 429 already", denied))
	run("gzip -k access.log && cat access.log.gz | caddy sliding-window replay - --config Caddyfile --zone logins --keys", 0, "Zone logins", "anna")
	run("caddy sliding-window replay access.log --config Caddyfile --zone nothing", 1, "--zone nothing: the configuration has no zone of this name")
	run("caddy sliding-window replay access.log --config nowhere", 1, "nowhere")
	run("caddy sliding-window replay nowhere.log --config Caddyfile", 1, "nowhere.log")
	run("caddy sliding-window replay Caddyfile --config Caddyfile", 1, "cannot be read")
	run("caddy sliding-window replay access.log --config Caddyfile --tolerate much", 1, "--tolerate much: must be a share of requests, such as 0.1%")
	run("caddy sliding-window replay access.log --config Caddyfile --memory 2", 1, "--memory 2: must be an amount such as 500MiB or 2GiB")
	run("caddy sliding-window replay", 1, "requires at least 1 arg")
	run("caddy sliding-window suggest access.log --window 1x", 1, `--window 1x: "1x" is not a duration, such as 1m`)
	run("caddy sliding-window suggest access.log --key header.Cookie", 0, "0 requests")
	run("caddy sliding-window suggest access.log --key header.X-User --json", 0, `"name": "per_X_User"`)

	write("excluded", "anna\n")
	run("caddy sliding-window replay access.log --config Caddyfile --zone logins --exclude excluded --tolerate 0%", 0, "of excluded keys are left out")
	write("old", strings.NewReplacer("limit 10 1h", "limit 1 1h", "{admin}", process.Admin).Replace(text))
	run("caddy sliding-window replay access.log --config old --adapter caddyfile --against Caddyfile --zone per_client", 0, "1 key newly denied, 0 denied more.", "newly, 0 no longer")
	run("caddy sliding-window replay access.log --config Caddyfile --against old --adapter caddyfile --zone per_client", 0, "1 key no longer denied, 0 denied less.", "0 newly")

	write("odd.log", strings.Join(lines[before:before+3], "")+"not a line\n")
	run("caddy sliding-window replay odd.log --config Caddyfile", 1, "odd.log:4")
	cut := strings.Join(lines[before:], "")
	write("cut.log", cut[:len(cut)-40])
	run("caddy sliding-window replay cut.log --config Caddyfile", 0, "cut.log ends within a line")
}

// exitStatus runs a line in a shell.
func exitStatus(t *testing.T, dir, line string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	_ = cmd.Run()
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}
