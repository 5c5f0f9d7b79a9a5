package pagetest

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// threeZones count requests by their path.
const threeZones = `zone logins {
	match {
		path /login
	}
	key {header.X-Key}
	limit 20 1m
	top_talkers
}
zone api {
	match {
		path /api
	}
	key {header.X-Key}
	limit 100000 1m
}
zone uploads {
	match {
		path /upload
	}
	limit 3 1m
	enforce shadow
}`

// decisions returns what Caddy's metrics say of zones and outcomes.
func (s *site) decisions() map[string]map[string]int {
	s.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(caddyrun.Fetch(s, s.client, "http://"+s.caddy.Admin+"/metrics")))
	if err != nil {
		s.Fatal(err)
	}
	all := make(map[string]map[string]int)
	for _, m := range families["caddy_sliding_window_decisions_total"].GetMetric() {
		var zone, outcome string
		for _, l := range m.GetLabel() {
			if l.GetName() == "zone" {
				zone = l.GetValue()
			} else {
				outcome = l.GetValue()
			}
		}
		if all[zone] == nil {
			all[zone] = make(map[string]int)
		}
		all[zone][outcome] = int(m.GetCounter().GetValue())
	}
	return all
}

// shown are the numbers of a zone's row.
type shown struct{ Rate, Ratio, Would, Allowed, Denied, Enforce, What string }

func (b *browser) zones() map[string]shown {
	b.Helper()
	return eval[map[string]shown](b, `Object.fromEntries([...document.querySelectorAll("#zones tr[data-zone]")].map(r => [r.dataset.zone, {
		Rate: r.cells[2].querySelector("b").textContent, Ratio: r.cells[3].querySelector("b").textContent, Would: r.cells[3].querySelector("small").textContent,
		Allowed: r.cells[4].textContent, Denied: r.cells[5].textContent, Enforce: r.cells[6].textContent, What: r.querySelector(".what").textContent}]))`)
}

// text returns the text of the element that a selector finds.
func (b *browser) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

func number(text string) int {
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	if err != nil {
		return -1
	}
	return n
}

// Within 3 s of being opened the page shows what the metrics say, and keeps up with them.
func TestPageShowsMetrics(t *testing.T) {
	s := newSite(t, threeZones)
	for i := range 30 {
		s.get("/login", "anna") // 10 of these are denied
		s.get("/api", strconv.Itoa(i))
		s.get("/upload", "")
	}
	s.Log(s.page)
	b := newBrowser(t, 1280, 1000, false)
	b.run(chromedp.Navigate(s.page))
	b.until(3*time.Second, `document.querySelectorAll("#zones tr[data-zone]").length === 3 && document.getElementById("all-rate").textContent !== "–"`)
	want := s.decisions()
	for zone, got := range b.zones() {
		passed, denied := want[zone]["allowed"]+want[zone]["shadow_allowed"]+want[zone]["shadow_denied"], strconv.Itoa(want[zone]["denied"])
		if shadow := want[zone]["shadow_denied"]; shadow > 0 {
			denied = strconv.Itoa(shadow) + " in shadow"
		}
		if number(got.Allowed) != passed || got.Denied != denied {
			t.Errorf("zone %s: the page shows %+v, and the metrics say %v", zone, got, want[zone])
		}
	}
	if want["logins"]["denied"] != 10 || want["uploads"]["shadow_denied"] != 27 {
		t.Errorf("the metrics say %v", want)
	}

	// A steady rate is shown as it is.
	began, sent := time.Now(), 0
	for time.Since(began) < 7*time.Second {
		s.get("/login", "bert")
		sent++
		time.Sleep(20 * time.Millisecond) // the rate is measured
	}
	rate := float64(sent) / time.Since(began).Seconds()
	got := b.zones()["logins"]
	if n, err := strconv.ParseFloat(got.Rate, 64); err != nil || math.Abs(n-rate) > rate/2 {
		t.Errorf("the page shows %+v; %v requests per second were sent", got, rate)
	}
	if got.Ratio != "100 %" || got.Enforce != "on" || !strings.Contains(got.What, "20\u00a0in\u00a01m") || b.zones()["uploads"].Enforce != "shadow" {
		t.Errorf("the page shows %+v", got)
	}
	for id, want := range map[string]string{
		"state": "Live", "all-zones": "1", "all-zones-note": "of 3", "all-stores": "OK", "all-stores-note": "1 store",
	} {
		if text := b.text("#" + id); text != want {
			t.Errorf("%s shows %q, want %q", id, text, want)
		}
	}
	b.checkQuiet(s.page)
}

// Top talkers are shown for a zone that keeps them, and only when they are asked for.
func TestPageTopTalkers(t *testing.T) {
	s := newSite(t, threeZones)
	for i := range 60 {
		s.get("/login", "<b>anna</b>")
		s.get("/login", strconv.Itoa(i%30))
	}
	b := newBrowser(t, 1280, 1000, false)
	b.run(chromedp.Navigate(s.page))
	b.until(20*time.Second, `document.querySelector("#zones tr[data-zone=logins]") && !document.querySelector("#zones tr[data-zone=logins] .act button").hidden && document.querySelector("#zones tr[data-zone=api] .act button").hidden`)
	if log := s.caddy.Log.String(); strings.Contains(log, "/sliding_window/top") {
		t.Errorf("top talkers were asked for:\n%s", log)
	}
	b.run(chromedp.Click(`#zones tr[data-zone=logins] .act button`), chromedp.WaitVisible(`#top tbody tr`))
	text := b.text("#top tbody")
	if !strings.HasPrefix(text, "<b>anna</b>400100 %") {
		t.Errorf("denied: %q", text)
	}
	b.run(chromedp.SetValue(`#top-by`, "charged"), chromedp.Click(`#top-show`))
	b.until(20*time.Second, `document.querySelectorAll("#top tbody tr").length === 10`)
	if note := eval[string](b, `document.getElementById("top-note").textContent`); !strings.HasPrefix(note, "Zone logins: 80 units charged since ") {
		t.Errorf("charged: %q", note)
	}
	b.checkQuiet(s.page)
}

// Caddy logs six requests of the page in a minute at most, however many browsers show it.
func TestPageLogLines(t *testing.T) {
	s := newSite(t, threeZones)
	began := time.Now()
	for range 2 {
		b := newBrowser(t, 1280, 1000, false)
		b.run(chromedp.Navigate(s.page))
		b.until(20*time.Second, `document.querySelector("#zones tr")`)
		defer b.checkQuiet(s.page)
	}
	time.Sleep(21 * time.Second) // what is counted takes time
	lines := strings.Count(s.caddy.Log.String(), "received request")
	if most := 1 + int(time.Since(began)/(10*time.Second)); lines < 2 || lines > most {
		t.Errorf("Caddy logged %d lines, want %d at most:\n%s", lines, most, s.caddy.Log)
	}
	t.Logf("%d lines in %s", lines, time.Since(began))
}

// The page says so when Caddy or the command is gone, or when the token is wrong.
func TestPageFailures(t *testing.T) {
	s := newSite(t, threeZones)
	b := newBrowser(t, 1280, 1000, false)
	state := func(want string) {
		t.Helper()
		b.until(20*time.Second, fmt.Sprintf("document.getElementById('state').textContent.includes(%q)", want))
	}
	b.run(chromedp.Navigate(s.page))
	state("Live")
	s.caddy.Stop()
	state("Caddy has not answered for 3s")
	s.caddy.Cont()
	state("Live")
	s.caddy.End(t)
	state("is Caddy running")
	plain, _, _ := strings.Cut(s.page, "#")
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(plain))
	state("lacks its token")
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(plain+"#wrong"))
	state("The token is not the one")
}

// What a screen reader and a keyboard need is there: names of all controls and plots, headings, tables
// with headers, and a filter that a key reaches.
func TestPageAccessibility(t *testing.T) {
	s := newSite(t, threeZones)
	s.get("/login", "anna")
	b := newBrowser(t, 1280, 1000, false)
	b.run(chromedp.Navigate(s.page))
	b.until(20*time.Second, `document.querySelector("#zones tr")`)
	b.until(20*time.Second, `document.getElementById("all-rate").textContent !== "–"`)
	for _, wrong := range eval[[]string](b, `[
		...[...document.querySelectorAll("input, select, button")].filter(e => !e.hidden && !(e.labels && e.labels.length) && !e.getAttribute("aria-label") && !e.textContent.trim()).map(e => "no label: " + e.outerHTML),
		...[...document.querySelectorAll("svg")].filter(e => e.getAttribute("aria-hidden") !== "true" && !(/^(img|slider)$/.test(e.getAttribute("role")) && e.getAttribute("aria-label"))).map(e => "no name: " + e.outerHTML.slice(0, 100)),
		...[...document.querySelectorAll("section")].filter(e => !document.getElementById(e.getAttribute("aria-labelledby"))).map(e => "no name: " + e.outerHTML.slice(0, 100)),
		...[...document.querySelectorAll("table")].filter(e => !document.getElementById(e.getAttribute("aria-labelledby"))).map(e => "no name: " + e.outerHTML.slice(0, 100)),
		...[...document.querySelectorAll("th")].filter(e => !e.scope).map(e => "no scope: " + e.outerHTML.slice(0, 100)),
		...[...document.querySelectorAll("tbody tr")].filter(e => !e.querySelector("th")).map(e => "no header: " + e.outerHTML.slice(0, 100)),
		...["header", "main", "footer", "h1", "[role=status]", "html[lang]"].filter(q => !document.querySelector(q)).map(q => "no " + q),
	]`) {
		t.Error(wrong)
	}
	if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "/", Text: "/"}); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.KeyEvent("log"))
	if rows := b.zones(); len(rows) != 1 || rows["logins"].Allowed != "1" {
		t.Errorf("filtered by the keyboard: %+v", rows)
	}
	b.run(chromedp.KeyEvent(kb.Escape))
	if rows := b.zones(); len(rows) != 3 {
		t.Errorf("without the filter: %+v", rows)
	}
	reached := map[string]bool{}
	for range 30 {
		b.run(chromedp.KeyEvent(kb.Tab))
		reached[eval[string](b, `document.activeElement.id || document.activeElement.getAttribute("aria-label") || document.activeElement.textContent`)] = true
	}
	for _, want := range []string{"Decisions /s", "Denied now", "logins", "Show the top talkers of logins", "top-zone", "top-by", "top-show", "Stores, scrollable"} {
		if !reached[want] {
			t.Errorf("the Tab key does not reach %s, only %v", want, reached)
		}
	}
	b.checkQuiet(s.page)
}

// The page is one file of 60 KB at most, with a policy that allows nothing but itself.
func TestPageFile(t *testing.T) {
	s := newSite(t, threeZones)
	resp, err := s.client.Get(s.page)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || len(text) > 60_000 || len(text) < 1000 {
		t.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(text), err)
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %s", policy)
	}
	if outside := regexp.MustCompile(`(?i)(src|href)="[^"#]*//|@import|url\(|\sstyle="|\son[a-z]+="`).Find(text); outside != nil {
		t.Errorf("the page has %s", outside)
	}
	t.Logf("the page has %d bytes", len(text))
}
