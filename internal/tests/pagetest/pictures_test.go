package pagetest

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// load makes clients ask the zones of shop in waves until it is ended.
func (s *site) load(began time.Time, ended chan struct{}) {
	ticker := time.NewTicker(40 * time.Millisecond) // a rate to show
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		wave := 1 + math.Sin(time.Since(began).Seconds()/9)
		for range int(1 + 2*wave) {
			s.get("/api", strconv.Itoa(i%50))
		}
		s.get("/logins", "192.0.2."+strconv.Itoa(i%9*i%7+i%13))
		if i%2 == 0 {
			s.get("/search", strconv.Itoa(i%9))
			s.get("/tenant-031", "a")
		}
		if i%5 == 0 {
			s.get("/webhooks-of-the-partner-portal", "a")
		}
		if wave > 1.4 {
			s.get("/logins", "203.0.113.9")
			s.get("/uploads", "a")
		}
	}
}

// shop returns zones as a shop may have them.
func shop() string {
	zones := zone("logins", "limit 20 1m\ntop_talkers") + zone("api", "limit 100000 1m") + zone("uploads", "limit 3 1m\nenforce shadow") +
		zone("search", "limit 600 1m\nalgorithm gcra\ntop_talkers") + zone("webhooks-of-the-partner-portal", "limit 6000 1h")
	for i := range 60 {
		zones += zone(fmt.Sprintf("tenant-%03d", i), "limit 100000 1h\nlimit 1000 1m")
	}
	return zones
}

// TestScreenshots writes the pictures of the documents, with -screenshots; else it wants the page to be
// dark where the browser is, and nowhere wider than its window.
func TestScreenshots(t *testing.T) {
	server := redistest.Start(t)
	s := newSite(t, shop()+"store redis {\naddress "+server.Addr+"\n}\n")
	s.cli("override", "set", "--zone", "api", "--pattern", "partner-*", "--factor", "2.5", "--ttl", "2h", "--reason", "TICKET-7", "--by", "anna")
	began, ended, loaded := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(loaded)
		s.load(began, ended)
	}()
	defer func() {
		close(ended)
		<-loaded
	}()
	length := 5 * time.Second
	if *screenshots {
		length = 100 * time.Second
	}
	time.Sleep(length) // plots are of time
	var backgrounds []string
	for _, shot := range []struct {
		name          string
		width, height int
		dark, more    bool
		away          bool // the store
	}{
		{name: "light", width: 1280, height: 1000, more: true},
		{name: "dark", width: 1280, height: 1000, dark: true},
		{name: "phone", width: 390, height: 844},
		{name: "wide", width: 1920, height: 1000},
		{name: "outage", width: 1280, height: 560, away: true},
	} {
		if shot.away {
			server.Stop()
		}
		b := newBrowser(t, shot.width, shot.height, shot.dark)
		b.run(chromedp.EmulateViewport(int64(shot.width), int64(shot.height)), chromedp.Navigate(s.page))
		b.until(15*time.Second, `document.querySelector("#zones .fold") && document.getElementById("all-rate").textContent !== "–" && document.getElementById("overrides").hidden === false`)
		if shot.away {
			b.until(20*time.Second, `!document.getElementById("trouble").hidden`)
		}
		if shot.more {
			b.run(chromedp.Click("#zones tr[data-zone=logins] .zone button"), chromedp.WaitVisible("#zones .detail"),
				chromedp.SetValue("#top-zone", eval[string](b, `[...document.querySelectorAll("#top-zone option")].find(o => o.textContent === "logins").value`)), chromedp.Click("#top-show"), chromedp.WaitVisible("#top tbody tr"))
			eval[bool](b, `(document.activeElement.blur(), scrollTo(0, 0), true)`)
		}
		if !shot.away {
			backgrounds = append(backgrounds, eval[string](b, "getComputedStyle(document.body).backgroundColor"))
		}
		if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > shot.width {
			t.Errorf("%s: the page is %d wide", shot.name, wide)
		}
		picture := get(b, chromedp.CaptureScreenshot())
		if shot.more {
			picture = get(b, chromedp.FullScreenshot(100))
		}
		if !bytes.HasPrefix(picture, []byte("\x89PNG")) {
			t.Error("no picture")
		}
		if *screenshots && shot.name != "wide" {
			if err := os.WriteFile("../../../docs/page-"+shot.name+".png", picture, 0o600); err != nil {
				t.Error(err)
			}
		}
		b.checkQuiet(s.page)
	}
	server.Cont()
	if backgrounds[0] == backgrounds[1] || strings.Join(backgrounds[2:], "") != backgrounds[0]+backgrounds[0] {
		t.Errorf("light and dark have the backgrounds %v", backgrounds)
	}
}
