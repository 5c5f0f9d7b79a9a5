package pagetest

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// manyZones returns zones, named zone_000 and so on.
func manyZones(n int) string {
	var zones strings.Builder
	for i := range n {
		zones.WriteString(zone(fmt.Sprintf("zone_%03d", i), fmt.Sprintf("limit %d 1h", 5+i%3)))
	}
	return zones.String()
}

const order = `[...document.querySelectorAll("#zones tr[data-zone]")].map(r => r.dataset.zone).join()`

// A zone is one line of 37 px at most. Zones without requests are folded until somebody opens them, or looks for one.
func TestPageFoldsQuietZones(t *testing.T) {
	s := newSite(t, manyZones(200)+zone("a_zone_with_a_name_that_no_column_is_ever_wide_enough_for", "limit 5 1h"))
	s.traffic(100*time.Millisecond, "/zone_077", "/zone_077", "/zone_042", "/a_zone_with_a_name_that_no_column_is_ever_wide_enough_for")
	b := s.open(1280, 1000)
	b.until(20*time.Second, `document.querySelectorAll("#zones tr[data-zone]").length === 3 && document.querySelector("#zones tr").dataset.zone === "zone_077"`)
	if text := b.text("#zones .fold"); !regexp.MustCompile(`^198 zones without requests in the last \d+ s$`).MatchString(text) {
		t.Errorf("folded: %q", text)
	}
	if tall := eval[float64](b, `Math.max(...[...document.querySelectorAll("#zones tr")].map(r => r.getBoundingClientRect().height))`); tall > 37 {
		t.Errorf("a row is %v px", tall)
	}
	if cut := eval[bool](b, `(b => b.scrollWidth > b.clientWidth && b.title === b.textContent)(document.querySelector("#zones tr[data-zone^=a_zone] .zone button"))`); !cut {
		t.Error("a long name is not cut, or has no title")
	}
	eval[bool](b, `(document.querySelector("#zones .fold button").focus(), true)`)
	b.run(chromedp.KeyEvent(kb.Enter))
	if rows := b.zones(); len(rows) != 201 {
		t.Errorf("%d rows are unfolded", len(rows))
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	if rows := b.zones(); len(rows) != 3 {
		t.Errorf("%d rows are folded again", len(rows))
	}
	b.run(chromedp.SendKeys("#filter", "zone_19"))
	b.until(20*time.Second, `[...document.querySelectorAll("#zones .what")].every(w => w.textContent)`) // rows are drawn once they are seen
	if rows := b.zones(); len(rows) != 10 || b.text("#zones-shown") != "10 of 201" {
		t.Errorf("filtered, %s: %+v", b.text("#zones-shown"), rows)
	}
	b.checkQuiet(s.page)
}

// A click on a heading sorts, a second one turns the order, and it stays when numbers come and when the page is loaded again.
func TestPageSortStays(t *testing.T) {
	s := newSite(t, zone("a", "limit 1 1h")+zone("b", "limit 100000 1h")+zone("c", "limit 2 1h"))
	s.traffic(100*time.Millisecond, "/a", "/b", "/b", "/b", "/c", "/c")
	b := s.open(1280, 900)
	want := func(when, want, sorted string) {
		t.Helper()
		b.until(20*time.Second, order+` === `+strconv.Quote(want))
		if got := eval[string](b, `[...document.querySelectorAll("#head th[aria-sort]")].map(h => h.textContent + " " + h.getAttribute("aria-sort")).join()`); got != sorted {
			t.Errorf("%s: sorted by %s, want %s", when, got, sorted)
		}
	}
	want("at first", "c,a,b", "Denied now descending")
	heading := func(text string) chromedp.Action[chromedp.Void] {
		return chromedp.Click(fmt.Sprintf(`#head th:nth-child(%s) button`, text))
	}
	b.run(heading("5"))
	want("clicked", "b,c,a", "Allowed in total descending")
	b.run(heading("1"))
	want("by name", "a,b,c", "Zone ascending")
	b.run(heading("1"))
	want("by name, turned", "c,b,a", "Zone descending")
	time.Sleep(12 * time.Second) // a status, and six times numbers
	want("later", "c,b,a", "Zone descending")
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.page))
	want("loaded again", "c,b,a", "Zone descending")
	if top := eval[float64](b, `(scrollTo(0, 0), document.body.style.minHeight = "3000px", scrollTo(0, 400), document.querySelector("#table thead").getBoundingClientRect().top)`); top > 1 || top < -1 && !eval[bool](b, `document.getElementById("table").getBoundingClientRect().bottom < 0`) {
		t.Errorf("the headings are at %v px after scrolling", top)
	}
	b.checkQuiet(s.page)
}

// Plots are full as soon as the page opens, from what Caddy has counted. They tell time and value under the pointer, and to the
// keyboard.
func TestPagePlotsTellValues(t *testing.T) {
	s := newSite(t, zone("api", "limit 10 1h"))
	s.traffic(50*time.Millisecond, "/api")
	time.Sleep(11 * time.Second) // what plots show
	b := s.open(1280, 900)
	line := eval[string](b, `document.querySelector("#zones .all .line").getAttribute("d")`)
	points := regexp.MustCompile(`[ML]([\d.]+) `).FindAllStringSubmatch(line, -1)
	at := func(i int) float64 { x, _ := strconv.ParseFloat(points[i][1], 64); return x }
	if len(points) < 5 || at(0) > at(1)-at(0) { // the first count may have none before it to be compared with
		t.Errorf("the plot that has just been opened is %q", line)
	}
	box := eval[[]float64](b, `(r => [r.left, r.top, r.width, r.height])(document.querySelector("#zones svg.plot").getBoundingClientRect())`)
	told := regexp.MustCompile(`^\d\d:\d\d:\d\d  [\d.]+ a second, \d+ % denied$`)
	var tips []string
	for _, x := range []float64{.95, .2} {
		if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: "mouseMoved", X: box[0] + x*box[2], Y: box[1] + box[3]/2}); err != nil {
			t.Fatal(err)
		}
		b.until(20*time.Second, `!document.getElementById("tip").hidden`)
		tips = append(tips, b.text("#tip"))
	}
	if !told.MatchString(tips[0]) || !regexp.MustCompile(`^\d\d:\d\d:\d\d  [\d.]+ a second`).MatchString(tips[1]) || tips[0] == tips[1] || tips[0][:8] < tips[1][:8] {
		t.Errorf("under the pointer: %q", tips)
	}
	eval[bool](b, `(document.querySelector("#zones .zone button").focus(), true)`)
	b.run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#zones .detail svg.plot"))
	eval[bool](b, `(document.querySelector("#zones .detail svg.plot").focus(), true)`)
	value := func() string {
		return eval[string](b, `document.querySelector("#zones .detail svg.plot").getAttribute("aria-valuetext")`)
	}
	last := value()
	b.run(chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	if got := value(); !told.MatchString(last) || got[:8] >= last[:8] || b.text("#zones .detail output") != got {
		t.Errorf("by the keyboard: %q, then %q", last, got)
	}
	b.checkQuiet(s.page)
}

// On a phone, tiles are two by two, and each zone is a card with its name, share and plot. Nothing scrolls sideways.
func TestPagePhone(t *testing.T) {
	s := newSite(t, zone("logins", "limit 1 1h\ntop_talkers\nalert {\ndenied 50%\nover 10s\nmin 10\n}")+zone("a_zone_with_a_name_that_is_much_longer_than_a_phone_is_wide", "limit 1 1h\nenforce shadow"))
	s.cli("override", "set", "--zone", "logins", "--key", strings.Repeat("a-long-key-", 10), "--deny", "--reason", strings.Repeat("because ", 20))
	s.traffic(100*time.Millisecond, "/logins", "/a_zone_with_a_name_that_is_much_longer_than_a_phone_is_wide")
	b := s.open(390, 844)
	b.until(20*time.Second, `!document.getElementById("trouble").hidden && !document.getElementById("overrides").hidden`)
	wide := func(when string) {
		t.Helper()
		if wide := eval[[]int](b, `[document.documentElement.scrollWidth, Math.round(Math.max(...[...document.querySelectorAll("main > *, #zones tr")].map(e => e.getBoundingClientRect().right)))]`); wide[0] > 390 || wide[1] > 390 {
			t.Errorf("%s, the page is %v px wide", when, wide)
		}
	}
	wide("at first")
	tiles := eval[[]float64](b, `[...document.querySelectorAll(".tile")].map(e => e.getBoundingClientRect().top)`)
	if tiles[0] != tiles[1] || tiles[2] != tiles[3] || tiles[2] <= tiles[0] {
		t.Errorf("the tiles begin at %v", tiles)
	}
	for _, wrong := range eval[[]string](b, `[...document.querySelectorAll("#zones tr")].flatMap(r => {
		const box = q => r.querySelector(q).getBoundingClientRect(), name = box(".zone button"), share = box(".share"), plot = box("svg.plot");
		return name.right <= share.left && name.bottom <= plot.top + 2 && plot.width > 200 && share.right <= 390 ? [] : [r.dataset.zone];
	})`) {
		t.Errorf("the card of %s is not name, share, plot", wrong)
	}
	b.until(20*time.Second, `[...document.querySelectorAll("#zones .share")].map(e => e.innerText.trim()).sort().join() === "100 %,would deny 100 %"`)
	b.run(chromedp.Click("#zones tr[data-zone=logins] .zone button"), chromedp.WaitVisible("#zones .detail"))
	wide("with a zone open")
	b.run(chromedp.Click("#top-show"), chromedp.WaitVisible("#top tbody tr"))
	wide("with top talkers")
	b.checkQuiet(s.page)
}

// Beside each zone is a command to copy, which runs as it is.
func TestPageCopiesCommands(t *testing.T) {
	s := newSite(t, zone("api", "limit 10 1h\ntop_talkers"))
	s.get("/api", "anna")
	b := s.open(1280, 900)
	b.run(chromedp.Click("#zones tr[data-zone=api] .icon"))
	b.until(20*time.Second, `document.getElementById("tip").textContent === "Copied"`)
	eval[bool](b, `(document.getElementById("filter").focus(), true)`)
	if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "v", Code: "KeyV", Modifiers: 2, Commands: []string{"paste"}}); err != nil {
		t.Fatal(err)
	}
	pasted := eval[string](b, `document.getElementById("filter").value`)
	b.run(chromedp.KeyEvent(kb.Escape), chromedp.Click("#zones tr[data-zone=api] .zone button"), chromedp.WaitVisible("#zones .detail"))
	commands := eval[[]string](b, `[document.querySelector("#zones .icon").title.replace("Copy: ", ""), ...[...document.querySelectorAll("#zones .commands code")].map(c => c.textContent)]`)
	if len(commands) != 4 || pasted != commands[0] || commands[0] != "caddy sliding-window inspect --zone api --key KEY --address "+s.caddy.Admin {
		t.Errorf("the commands are %q, and %q was pasted", commands, pasted)
	}
	for _, command := range commands {
		words := strings.Fields(command)[1:]
		if out, err := exec.Command(caddyrun.Binary(t), words...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	b.checkQuiet(s.page)
}

// With 200 zones that are all busy, scrolling has nothing to do but to scroll: rows outside of the window are not drawn. The frames
// are in the log, as they depend on the machine.
func TestPageScrolls200Zones(t *testing.T) {
	s := newSite(t, manyZones(200))
	for i := range 200 {
		s.get(fmt.Sprintf("/zone_%03d", i), "a")
	}
	b := s.open(1280, 900)
	b.until(20*time.Second, `document.querySelectorAll("#zones tr[data-zone]").length === 200`)
	const rows = `[...document.querySelectorAll("#zones .all .line")].filter(p => p.getAttribute("d")).length`
	b.until(20*time.Second, rows+" > 0")
	if drawn := eval[int](b, rows); drawn > 60 {
		t.Errorf("%d rows are drawn", drawn)
	}
	eval[string](b, `(window.scrolled = new Promise(done => {
		const tasks = [], gaps = [];
		new PerformanceObserver(list => list.getEntries().forEach(e => tasks.push(Math.round(e.duration)))).observe({type: "longtask"});
		let last = 0, first = 0;
		const step = at => {
			if (last) gaps.push(at - last);
			last = at;
			first = first || at;
			scrollBy(0, 16);
			if (at - first < 5000) requestAnimationFrame(step);
			else done(JSON.stringify({Count: gaps.length, Late: gaps.filter(g => g > 25).length, Seconds: (at - first) / 1000, Longest: Math.max(...gaps), Tasks: tasks}));
		};
		requestAnimationFrame(step);
	}), "")`)
	b.until(20*time.Second, `(window.scrolled.then(text => window.frames200 = text), window.frames200)`)
	if near := eval[int](b, `document.querySelectorAll("#zones tr:not(.far)").length`); near == 0 || near > 60 {
		t.Errorf("%d rows have a plot after scrolling", near)
	}
	t.Logf("frames while scrolling: %s", eval[string](b, `window.frames200`))
	if y := eval[float64](b, `scrollY`); y < 1000 {
		t.Errorf("scrolled to %v px", y)
	}
	b.until(20*time.Second, `(r => r.querySelector(".all .line").getAttribute("d"))([...document.querySelectorAll("#zones tr")].find(r => r.getBoundingClientRect().top > 100))`)
	b.checkQuiet(s.page)
}
