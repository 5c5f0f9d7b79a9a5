package e2e_test

import (
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// worded is a Caddyfile with zones whose keys are names, addresses, and what a client writes.
const worded = `{
	admin {admin}
	persist_config off
	auto_https off
	storage file_system {storage}
	sliding_window {
		store {store}
	}
}
http://{site} {
	handle /healthz {
		respond ok
	}
	map {header.X-Key} {customer} {per_minute} {per_day} {
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
			top_talkers
		}
		zone clients {
			limit 20 1m
			limit 2000 1d
		}
		zone written {
			key {header.X-Key}
			limit 500 1h
			algorithm slices {
				count 3
			}
			pack 1000
		}
	}
	respond ok
}
`

// The answer to override set, as JSON and as text, says what the override replaces and takes away, and warns of one that may
// select no key. Only with a store that is shared does it speak of other Caddys.
func TestOverrideSaysWhatItChanges(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	server := redistest.Start(t)
	for name, store := range map[string]string{"memory": "memory", "redis": "redis {\naddress " + server.Addr + "\ntimeout 2s\n}"} {
		t.Run(name, func(t *testing.T) {
			site, dir := caddyrun.FreeAddress(t), caddyrun.Commands(t)
			process := caddyrun.Start(t, strings.NewReplacer("{site}", site, "{storage}", t.TempDir(), "{store}", store).Replace(worded), site)
			client := caddyrun.NewClient(t)
			_ = caddyrun.MustGet(t, client, site, "b7e1c0d2")
			const ofPlan, ofClients = "{per_minute} in 1m, {per_day} in 24h", "20 in 1m, 2000 in 24h"
			const unseen = "nothing is counted for this key now; check its spelling with inspect"
			note := map[string]string{"redis": "other Caddys that share the store follow within 3 s"}[name]
			ending := ".\n"
			if note != "" {
				ending = "; " + note + ending
			}
			run := func(line string, ok bool) (stdout, stderr string) {
				t.Helper()
				stdout, stderr, success := shell(t, dir, "", "caddy sliding-window override "+line+" --address "+process.Admin)
				if success != ok {
					t.Errorf("%s: success %v\n%s%s", line, success, stdout, stderr)
				}
				return stdout, stderr
			}
			const anyLimit = `,"limits":[{"max":5,"window":"1m"}]}`
			for _, step := range []struct{ body, effect, replaced, inPlaceOf, warning string }{
				{`{"zone":"clients","key":"127.0.0.1","limits":[{"max":700,"window":"60s"},{"max":9,"window":"1h"}]}`, "700 in 1m, 9 in 1h", "", ofClients, ""},
				{`{"zone":"clients","key":"127.0.0.1","factor":2.5}`, "times 2.5", "700 in 1m, 9 in 1h", "", ""},
				{`{"zone":"clients","cidr":"10.0.0.0/8","deny":true,"ttl":"1h"}`, "deny", "", ofClients, ""},
				{`{"zone":"clients","all":true,"exempt":true}`, "exempt", "", ofClients, ""},
				{`{"zone":"clients","key":"192.0.2.1","deny":true}`, "deny", "", ofClients, ""}, // exempt keys are not counted
				{`{"zone":"plan","key":"anna"` + anyLimit, "5 in 1m", "", ofPlan, ""},
				{`{"zone":"plan","key":"b7e1c0d2"` + anyLimit, "5 in 1m", "", ofPlan, unseen},
				{`{"zone":"plan","key":"b7e1c0d2","deny":true}`, "deny", "5 in 1m", ofPlan, ""}, // which was said at first
				{`{"zone":"plan","key":"","deny":true}`, "deny", "", ofPlan, "key: empty, and with empty_key skip such requests are not counted"},
				{`{"zone":"plan","cidr":"10.0.0.0/8","deny":true}`, "deny", "", ofPlan, "no key of this zone that was seen here is an address"},
				{`{"zone":"written","key":"b7e1c0d2","deny":true}`, "deny", "", "500 in 1h", ""},
				{`{"zone":"written","key":"anna","factor":2}`, "times 2", "", "", unseen},
				{`{"zone":"written","cidr":"10.0.0.0/8","deny":true}`, "deny", "", "500 in 1h", "a network selects addresses only; check that {header.X-Key} is one"},
				{`{"zone":"written","pattern":"b*","deny":true}`, "deny", "", "500 in 1h", ""},
			} {
				c := changed(t, client, process.Admin, "set", step.body)
				id := c.Records[0].ID
				if got := [...]string{c.Records[0].Effect(), c.Replaced[id], c.InPlaceOf[id], c.Warnings[id], c.Note}; got != [...]string{step.effect, step.replaced, step.inPlaceOf, step.warning, note} {
					t.Errorf("%s: got %q", step.body, got)
				}
			}
			changed(t, client, process.Admin, "replace", `{"records":[]}`)
			for _, step := range []struct{ line, want string }{
				{"set --zone clients --key 127.0.0.1 --limit 600/1m", "127.0.0.1 in zone clients (600 in 1m) was set, in place of " + ofClients + ".\n"},
				{"set --zone clients --key 127.0.0.1 --limit 700/1m", "127.0.0.1 in zone clients (700 in 1m) replaced 600 in 1m, in place of " + ofClients + ".\n"},
				{"set --zone plan --key b7e1c0d2 --deny", "b7e1c0d2 in zone plan (deny) was set, in place of " + ofPlan + ".\nWarning: " + unseen + ".\n"},
				{"delete --zone clients --key 127.0.0.1", "127.0.0.1 in zone clients (700 in 1m) was deleted.\n"},
			} {
				text, _ := run(step.line, true)
				_, rest, _ := strings.Cut(text, " of ")
				if version := strings.TrimRight(wordAfter(rest, "Version "), ".;"); rest != step.want+"Version "+version+ending {
					t.Errorf("%s: got\n%swant\n%s", step.line, text, step.want)
				}
			}
			if text, _, _ := shell(t, dir, "[]", "caddy sliding-window override replace - --address "+process.Admin); !strings.Contains(text, "has 0 overrides now; version ") || !strings.HasSuffix(text, ending) {
				t.Errorf("replace: %s", text)
			}
			// A list is answered for each of its records.
			c := changed(t, client, process.Admin, "set", `[{"zone":"plan","key":"anna","deny":true},{"zone":"written","key":"anna","deny":true}]`)
			if len(c.Records) != 2 || len(c.InPlaceOf) != 2 || c.InPlaceOf[c.Records[1].ID] != "500 in 1h" || len(c.Warnings) != 1 || c.Warnings[c.Records[1].ID] != unseen {
				t.Errorf("a list: got %+v", c)
			}
			if name == "memory" {
				return
			}
			server.Kill()
			if _, stderr := run("set --zone plan --key anna --deny", false); !strings.Contains(stderr, "nothing was changed, and the overrides that hold stay in force; repeat it when caddy sliding-window status says ok") {
				t.Errorf("set while Redis is away: %s", stderr)
			}
		})
	}
}

// wordAfter returns the word that follows a text.
func wordAfter(text, before string) string {
	_, rest, _ := strings.Cut(text, before)
	word, _, _ := strings.Cut(rest, " ")
	word, _, _ = strings.Cut(word, "\n")
	return word
}
