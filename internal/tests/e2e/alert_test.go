package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// alerted has handlers for events, with all fields of each.
const alerted = `
	admin %s
	persist_config off
	auto_https off
	storage_clean_interval off
	log {
		output sliding_window_test
	}
	events {
		on sliding_window_alert exec fired {event.data.zone} {event.data.store} {event.data.since} {event.data.denied_ratio} {event.data.denied} {event.data.requests} {event.module}
		on sliding_window_alert_resolved exec resolved {event.data.zone} {event.data.denied_ratio} {event.data.requests}
		on sliding_window_store_away exec away {event.data.store} node={event.data.node} {event.data.since} {event.data.cause}
		on sliding_window_store_back exec back {event.data.store} node={event.data.node} {event.data.since} {event.data.away}
		on sliding_window_enforce_changed exec enforce {event.data.zone} {event.data.store} {event.data.enforce} until={event.data.until} {event.data.reason}
		on sliding_window_memory_high exec memory {event.data.store} {event.data.memory} {event.data.memory_max} {event.data.maxmemory_policy}
	}
	sliding_window {
		store redis {
			address %s
			timeout 1s
		}
	}
`

// alertedZone denies after ten requests.
const alertedZone = `
	sliding_window {
		zone alerted {
			key {header.X-Key}
			limit 10 1h
			alert {
				denied 50%
				over 10s
				min 20
			}
		}
		log_key
	}
	respond ok
`

func (c *controlled) loadAlerted(redis, more string) {
	c.Helper()
	caddyfile := "{" + fmt.Sprintf(alerted, c.admin, redis) + "}\nhttp://" + c.site + " {" + more + alertedZone + "}\n"
	if err := loadCaddy(caddyfile); err != nil {
		c.Fatal(err)
	}
	c.client.CloseIdleConnections() // those of the endpoint before
}

// wantExecuted waits until an event has run a command, and returns its words.
func wantExecuted(t *testing.T, pattern string) {
	t.Helper()
	word, _, _ := strings.Cut(pattern, " ")
	caddyrun.Eventually(t, 40*time.Second, "an event has "+word+" run", func() bool { return len(executed.with(word)) > 0 })
	if lines := executed.with(word); len(lines) != 1 || !regexp.MustCompile("^"+pattern+"$").MatchString(lines[0]) {
		t.Errorf("events ran %q, want once %s", lines, pattern)
	}
}

func (c *controlled) alerts() []control.Alert {
	c.Helper()
	_, text := c.ask(http.MethodGet, "/sliding_window/status", "", "")
	var s control.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Alerts == nil {
		c.Fatalf("status: %v %s", err, text)
	}
	return s.Alerts
}

// TestAlertOfRunningCaddy makes a zone deny much: the log, the status, the gauge and the handlers of events
// hear of it once, across a reload, and of the end.
func TestAlertOfRunningCaddy(t *testing.T) {
	server := redistest.Start(t)
	executed.begin(nil)
	caddyLog.Reset()
	c := newControlled(t, "", "respond ok")
	c.loadAlerted(server.Addr, "")
	if all := c.alerts(); len(all) != 0 {
		t.Errorf("alerts %v before the first request", all)
	}
	for range 40 {
		c.request("", "a")
	}
	const when = `20\d\d-\S+Z`
	name := regexp.QuoteMeta("redis " + server.Addr + "/0 sw")
	wantExecuted(t, "fired alerted "+name+" "+when+` 0\.\d+ \d+ \d+ sliding_window`)
	if all := c.alerts(); len(all) != 1 || all[0].Zone != "alerted" || all[0].DeniedRatio < 0.5 {
		t.Errorf("alerts %+v, want that of the zone", all)
	}
	gauge := func() string {
		_, text := c.ask(http.MethodGet, "/metrics", "", "")
		return regexp.MustCompile(`(?m)^caddy_sliding_window_alert\{zone="alerted"\} (\d)`).FindStringSubmatch(text)[1]
	}
	if g := gauge(); g != "1" {
		t.Errorf("the gauge is %s, want 1", g)
	}
	c.loadAlerted(server.Addr, "\theader X-Reloaded yes\n")
	if all := c.alerts(); len(all) != 1 {
		t.Errorf("alerts %+v after a reload, want that of the zone", all)
	}
	wantExecuted(t, `resolved alerted \S+ \d+`)
	if n := len(executed.with("fired")); n != 1 {
		t.Errorf("it fired %d times", n)
	}
	if g := gauge(); g != "0" || len(c.alerts()) != 0 {
		t.Errorf("the gauge is %s, and the alerts %v", g, c.alerts())
	}
	log := caddyLog.String()
	for line, want := range map[string]int{
		`"level":"warn".*"zone denies a large share of its requests".*"zone":"alerted".*"over":10[,}]`:            1,
		`"level":"info".*"alert resolved".*"zone":"alerted"`:                                                      1,
		`"level":"info".*"zone denied requests".*"zone":"alerted".*"keys":1,"most":\[\{"key":"a","times":\d+\}\]`: 1,
	} {
		if n := len(regexp.MustCompile(line).FindAllString(log, -1)); n < want || n > want+1 { // a period may end amid the requests
			t.Errorf("%d lines like %s, want %d:\n%s", n, line, want, log)
		}
	}

	var answer control.Enforced
	c.post("enforce", map[string]any{"zone": "alerted", "mode": "shadow", "ttl": "1h", "reason": "a test"}, http.StatusOK, &answer)
	wantExecuted(t, "enforce alerted "+name+" shadow until="+when+" a test")
	server.Kill()
	wantExecuted(t, "away "+name+" node= "+when+" .*") // without any request: all are in shadow, or remembered
	if _, text := c.ask(http.MethodGet, "/sliding_window/status", "", ""); !strings.Contains(text, `"state":"away"`) {
		t.Errorf("the status does not say that the store is away: %s", text)
	}
	server.Restart(t)
	wantExecuted(t, "back "+name+" node= "+when+` \d+(\.\d+)?`)
}

// fill makes a server use 85 % of its memory.
func fill(t *testing.T, server *redistest.Server) {
	t.Helper()
	client := server.Client(t)
	if err := client.SetRange(t.Context(), "filler", 20<<20, "x").Err(); err != nil {
		t.Fatal(err)
	}
	used, err := client.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(used["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(n*100/85, 10)).Err(); err != nil {
		t.Fatal(err)
	}
}

// A handler that does not return delays events, and nothing else: requests, alerts, and a reload after a
// second.
func TestSlowHandlerOfEvents(t *testing.T) {
	server := redistest.Start(t)
	fill(t, server)
	block := make(chan struct{})
	executed.begin(block)
	t.Cleanup(func() {
		select {
		case <-block:
		default:
			close(block)
		}
	})
	c := newControlled(t, "", "respond ok")
	c.loadAlerted(server.Addr, "")
	wantExecuted(t, "memory "+regexp.QuoteMeta("redis "+server.Addr+"/0 sw")+` \d+ \d+ noeviction`)
	for range 40 {
		if status, _, _ := c.request("", "a"); status == 0 {
			t.Error("a request has no answer")
		}
	}
	caddyrun.Eventually(t, 20*time.Second, "the alert fires beside the handler", func() bool { return len(c.alerts()) == 1 })
	if all := executed.with("fired"); len(all) != 0 {
		t.Errorf("events ran %q beside each other", all)
	}
	c.loadAlerted(server.Addr, "\theader X-Reloaded yes\n")
	wantExecuted(t, `fired .*`) // by the next configuration, though the handler of the last one has not returned
	close(block)
}
