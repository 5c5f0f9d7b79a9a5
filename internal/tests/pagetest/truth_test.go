package pagetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// traffic makes clients ask paths of the site, each with a key of its own, until the test ends or stop is called.
func (s *site) traffic(every time.Duration, paths ...string) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every) // a rate to show
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			for _, path := range paths {
				s.get(path, path)
			}
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			close(ended)
			<-done
		}
	}
	s.Cleanup(stop)
	return stop
}

// zone returns a zone that counts the requests for the path of its name.
func zone(name, options string) string {
	return fmt.Sprintf("zone %s {\nmatch {\npath /%[1]s\n}\nkey {header.X-Key}\n%s\n}\n", name, options)
}

// open opens the page in a window of a size, and waits for its numbers.
func (s *site) open(width, height int) *browser {
	s.Helper()
	b := newBrowser(s.T, width, height, false)
	b.run(chromedp.EmulateViewport(int64(width), int64(height)), chromedp.Navigate(s.page))
	b.until(15*time.Second, `document.querySelector("#zones tr") && document.getElementById("all-rate").textContent !== "–" && performance.getEntriesByType("resource").length > 1`)
	return b
}

// Denials in shadow deny no request: no tile counts them, they are grey, and no order puts their zone first.
func TestPageShadowIsNotDenied(t *testing.T) {
	s := newSite(t, zone("a", "limit 1 1h\nenforce shadow")+zone("b", "limit 1000000 1m")+zone("c", "limit 1 1h"))
	s.traffic(100*time.Millisecond, "/a", "/b", "/b")
	b := s.open(1280, 900)
	b.until(15*time.Second, `document.getElementById("all-would").textContent.includes("in shadow") && document.querySelector("#zones tr[data-zone=a] .share").textContent === "would deny 100 %"`)
	none := func(when string) {
		t.Helper()
		for id, want := range map[string]string{"all-denied": "0.0", "all-ratio": "0 % of decisions", "all-zones": "0", "state": "Live"} {
			if got := b.text("#" + id); got != want {
				t.Errorf("%s: %s shows %q, want %q", when, id, got, want)
			}
		}
		if red := eval[int](b, `document.querySelectorAll(".red, .bad").length`); red > 0 {
			t.Errorf("%s: %d texts are red", when, red)
		}
	}
	none("in shadow")
	if got := b.zones()["a"]; got.Would != "would deny 100 %" || got.Ratio != "" || !strings.HasSuffix(got.Denied, " in shadow") {
		t.Errorf("the zone in shadow shows %+v", got)
	}
	grey := eval[bool](b, `getComputedStyle(document.querySelector("#zones tr[data-zone=a] .would")).color === getComputedStyle(document.getElementById("all-would")).color`)
	if first := eval[string](b, `document.querySelector("#zones tr").dataset.zone`); first != "b" || !grey {
		t.Errorf("zone %s is the first, grey: %v", first, grey)
	}

	// A zone that denies is counted until all zones are in shadow.
	s.traffic(200*time.Millisecond, "/c")
	b.until(20*time.Second, `document.getElementById("all-zones").textContent === "1" && document.querySelector("#zones tr").dataset.zone === "c" && document.querySelector("#zones .share b").textContent === "100 %"`)
	s.cli("enforce", "shadow", "--all", "--ttl", "10m", "--reason", "customers call")
	b.until(20*time.Second, `document.getElementById("all-zones").textContent === "0" && document.querySelector("#zones tr[data-zone=c] .enforced").textContent !== "on" && document.querySelector("#zones tr[data-zone=c] .share").textContent === "would deny 100 %"`)
	none("all in shadow")
	got := b.zones()["c"]
	if !regexp.MustCompile(`^shadow, (10|9) min left$`).MatchString(got.Enforce) || !strings.HasPrefix(got.What, "customers call · ") || got.Would != "would deny 100 %" {
		t.Errorf("the zone that an operator has stopped shows %+v", got)
	}
	b.checkQuiet(s.page)
}

// An outage is in a red box at the top, with its cause, its age and what decides until then. The dot is not green.
func TestPageOutageAtTop(t *testing.T) {
	for onError, want := range map[string]string{"local": "Its 12 zones decide locally.", "allow": "Its 12 zones let everything pass.", "deny": "Its 12 zones deny everything."} {
		t.Run(onError, func(t *testing.T) {
			server := redistest.Start(t)
			var zones strings.Builder
			for i := range 12 {
				zones.WriteString(zone(fmt.Sprintf("z%d", i), "limit 1000 1m"))
			}
			s := newSite(t, zones.String()+"on_error "+onError+"\nstore redis {\naddress "+server.Addr+"\n}\n")
			s.traffic(100*time.Millisecond, "/z1")
			b := s.open(1280, 900)
			b.until(20*time.Second, `document.getElementById("state").dataset.state === "live" && document.getElementById("trouble").hidden`)
			server.Stop()
			defer server.Cont()
			b.until(20*time.Second, `!document.getElementById("trouble").hidden`)
			text := b.text("#trouble-list li")
			if !regexp.MustCompile(`^Store redis .* is away since \d\d:\d\d:\d\d \(\d+ s\)No answer within 100ms\. `).MatchString(text) || !strings.Contains(text, want) {
				t.Errorf("the box says %q, want %q", text, want)
			}
			if state, top := b.text("#state"), eval[float64](b, `document.getElementById("trouble").getBoundingClientRect().top`); state != "Live, 1 problem" || top > 100 {
				t.Errorf("the state is %q, and the box is %v px below the top", state, top)
			}
			if colors := eval[[]string](b, `["#state", "#all-stores"].map(q => getComputedStyle(document.querySelector(q)).color)`); colors[0] != colors[1] || b.text("#all-stores") != "1 away" {
				t.Errorf("colours %v, stores %s", colors, b.text("#all-stores"))
			}
			server.Cont()
			b.until(30*time.Second, `document.getElementById("state").dataset.state === "live" && document.getElementById("trouble").hidden`)
			b.checkQuiet(s.page)
		})
	}
}

// An alert that has fired is in the box, too, with the command that shows more.
func TestPageAlertAtTop(t *testing.T) {
	s := newSite(t, zone("logins", "limit 1 1h\ntop_talkers\nalert {\ndenied 50%\nover 10s\nmin 10\n}"))
	s.traffic(50*time.Millisecond, "/logins")
	b := s.open(1280, 900)
	b.until(20*time.Second, `!document.getElementById("trouble").hidden`)
	if text := b.text("#trouble-list li"); !regexp.MustCompile(`^Zone logins denies \d+ % since \d\d:\d\d:\d\d \(\d+ s\)\d+ of the last \d+ requests\. See which keys\.caddy sliding-window top --zone logins --address `).MatchString(text) {
		t.Errorf("the box says %q", text)
	}
	if state := eval[string](b, `document.getElementById("state").dataset.state + " " + document.title`); state != "trouble (1) Rate limits" {
		t.Errorf("the state is %s", state)
	}
	b.checkQuiet(s.page)
}

// Overrides are sentences of people: who, what, until, why and by whom. Columns without content are not there.
func TestPageOverrides(t *testing.T) {
	s := newSite(t, zone("api", "limit 100 1m"))
	b := s.open(1280, 900)
	if !eval[bool](b, `document.getElementById("overrides").hidden`) {
		t.Error("there are overrides before any is set")
	}
	s.cli("override", "set", "--zone", "api", "--pattern", "customer-*", "--factor", "2.5", "--ttl", "2h", "--reason", "TICKET-7", "--by", "anna")
	s.cli("override", "set", "--zone", "api", "--key", "carl", "--limit", "20000/1m", "--limit", "100000/1h", "--by", "bert")
	b.until(30*time.Second, `document.querySelectorAll("#overrides-table tbody tr").length === 2`)
	rows := eval[[]string](b, `[...document.querySelectorAll("#overrides-table tr")].map(r => [...r.cells].map(c => c.textContent).join("|"))`)
	all := strings.Join(rows, "\n")
	for _, want := range []string{`(?m)^Zone\|Who\|What\|Until\|Why\|By\|$`, `(?m)^api\|keys like customer-\*\|times 2\.5\|[^|]*\d\d:\d\d[:\d]* \(2 h left\)\|TICKET-7\|anna\|$`, `(?m)^api\|carl\|20,000.in.1m, 100,000.in.1h\|for good\|\|bert\|$`} {
		if !regexp.MustCompile(want).MatchString(all) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
	if strings.ContainsAny(all, `{"`) {
		t.Errorf("raw JSON:\n%s", all)
	}
	s.cli("override", "delete", "--zone", "api", "--key", "carl")
	b.until(30*time.Second, `document.querySelectorAll("#overrides-table tbody tr").length === 1`)
	s.caddy.Logged(t, "overrides/list")
	if lines := strings.Count(s.caddy.Log.String(), "overrides/list"); lines > 6 {
		t.Errorf("the overrides were asked for %d times", lines)
	}
	b.checkQuiet(s.page)
	s.cli("override", "delete", "--zone", "api", "--pattern", "customer-*") // the storage outlives the test
}

// A zone with concurrent says how many requests may be open, and how many are now. An override of their number is a sentence.
func TestPageConcurrent(t *testing.T) {
	leave := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	t.Cleanup(backend.Close)
	s := newSite(t, zone("chats", "limit 2000 1m\nconcurrent 4")+"}\nhandle /chats {\nreverse_proxy "+backend.Listener.Addr().String()+"\n}\nsliding_window {\n"+zone("other", "limit 1 1m"))
	var ended sync.WaitGroup
	for range 3 {
		ended.Go(func() { s.get("/chats", "anna") })
	}
	b := s.open(1280, 900)
	const what = `document.querySelector("#zones tr[data-zone=chats] .what").textContent`
	b.until(20*time.Second, what+`.includes("at the same time")`)
	if got := eval[string](b, what); !regexp.MustCompile(`^2,000.in.1m, 4.at the same time · `).MatchString(got) {
		t.Errorf("the zone shows %q", got)
	}
	eval[bool](b, `(document.querySelector("#zones tr[data-zone=chats] button").focus(), true)`)
	b.run(chromedp.KeyEvent(kb.Enter))
	const open = `[...document.querySelectorAll("#zones .detail dt")].find(n => n.textContent === "Open now")?.nextSibling.textContent`
	b.until(20*time.Second, open+`?.startsWith("3 requests")`)
	close(leave)
	ended.Wait()
	b.until(20*time.Second, open+`.startsWith("0 requests")`)
	s.cli("override", "set", "--zone", "chats", "--key", "anna", "--limit", "5000/1m", "--concurrent", "2000")
	b.until(30*time.Second, `document.querySelectorAll("#overrides-table tbody tr").length === 1`)
	if got := b.text("#overrides-table tbody tr"); !regexp.MustCompile(`5,000.in.1m, 2,000.at the same time`).MatchString(got) {
		t.Errorf("the override is %q", got)
	}
	b.checkQuiet(s.page)
	s.cli("override", "delete", "--zone", "chats", "--key", "anna")
}

// Bans are counted by zone, and the newest are listed with the command that lifts each.
func TestPageBans(t *testing.T) {
	s := newSite(t, zone("api", "limit 100 1m\nban 10m"))
	b := s.open(1280, 900)
	if !eval[bool](b, `document.getElementById("bans").hidden`) {
		t.Error("there are bans before any is set")
	}
	s.cli("ban", "set", "--zone", "api", "--key", "anna", "--ttl", "2h", "--reason", "TICKET-7", "--by", "otto")
	s.cli("ban", "set", "--zone", "api", "--cidr", "192.0.2.0/24")
	b.until(30*time.Second, `document.querySelectorAll("#bans-table tbody tr").length === 2`)
	rows := eval[[]string](b, `[...document.querySelectorAll("#bans-table tr")].map(r => [...r.cells].map(c => c.textContent).join("|"))`)
	all := b.text("#bans-note") + "\n" + strings.Join(rows, "\n")
	for _, want := range []string{`^api 2 · the newest first`, `(?m)^Zone\|Who\|Since\|Until\|Why\|By\|$`, `(?m)^api\|network 192\.0\.2\.0/24\|[^|]*\|[^|]* \(10 min left\)\|\|127\.0\.0\.1\|$`, `(?m)^api\|anna\|[^|]*\|[^|]* \(2 h left\)\|TICKET-7\|otto\|$`} {
		if !regexp.MustCompile(want).MatchString(all) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
	if got := eval[[]string](b, `[...document.querySelectorAll("#bans-table button")].map(n => n.title)`); len(got) != 2 || !strings.Contains(got[0], "ban lift --zone api --cidr 192.0.2.0/24") || !strings.Contains(got[1], "ban lift --zone api --key anna") {
		t.Errorf("the commands are %q", got)
	}
	s.cli("ban", "lift", "--zone", "api", "--since", "1h")
	b.until(30*time.Second, `document.getElementById("bans").hidden`)
	b.checkQuiet(s.page)
}
