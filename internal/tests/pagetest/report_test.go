package pagetest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// writeLog writes a log of people, and of a crawler whose key would be code if it were not escaped.
func writeLog(t *testing.T, dir string) {
	t.Helper()
	var b strings.Builder
	line := func(ms int64, key string) {
		fmt.Fprintf(&b, `{"ts":%d.%03d,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","method":"GET","host":"localhost","uri":"/","headers":{"X-Key":[%q]}},"duration":0.001,"status":200}`+"\n", 1714557600+ms/1000, ms%1000, key)
	}
	for ms := int64(0); ms < 3*3600_000; ms += 500 {
		line(ms, fmt.Sprint("person ", ms/500%400))
		if ms > 3600_000 && ms < 4000_000 {
			for i := range int64(10) {
				line(ms+i, `<script>document.title='hacked'</script><img src=x onerror=alert(1)>`)
			}
		}
	}
	for name, text := range map[string]string{"access.log": b.String(), "Caddyfile": "http://localhost {\nsliding_window {\nzone per_key {\nkey {header.X-Key}\nlimit 30 1m\n}\n}\nrespond ok\n}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReports opens the pages of replay and suggest from files, in light and dark, on a desk and on a phone: each is
// whole, asks for nothing, and runs no code.
func TestReports(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir)
	for name, c := range map[string]struct {
		args  []string
		plots int
		want  []string
	}{
		"replay":  {[]string{"--config", "Caddyfile"}, 1, []string{"Zone per_key", "Denied over time", "Most affected", "30 in 1m"}},
		"suggest": {[]string{"--key", "header.X-Key"}, 7, []string{"Suggested: ", "Denied over time", "Distribution of peaks", "Denied by a limit", "Most affected", "enforce shadow"}},
	} {
		file := filepath.Join(dir, name+".html")
		cmd := exec.Command(caddyrun.Binary(t), append([]string{"sliding-window", name, "access.log", "--keys", "--html", file}, c.args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		for _, screen := range []struct {
			width, height int
			dark          bool
		}{{1280, 900, false}, {500, 900, true}} {
			t.Run(fmt.Sprint(name, screen.width), func(t *testing.T) {
				b := newBrowser(t, screen.width, screen.height, screen.dark)
				b.run(chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()))
				text := eval[string](b, "document.body.innerText")
				for _, want := range append(c.want, `<script>document.title='hacked'</script>`) {
					if !strings.Contains(text, want) {
						t.Errorf("the page lacks %q", want)
					}
				}
				if n := eval[int](b, "document.querySelectorAll('svg').length"); n != c.plots {
					t.Errorf("%d plots, want %d", n, c.plots)
				}
				for what, expression := range map[string]string{
					"code ran":                  "document.title.includes('hacked') || document.scripts.length || document.images.length",
					"the page is too wide":      "document.documentElement.scrollWidth > innerWidth",
					"a plot has no height":      "[...document.querySelectorAll('svg')].some(s => s.getBoundingClientRect().height < 100)",
					"no column is red":          "!document.querySelector('rect.part') && !document.querySelector('path.first')",
					"the style was blocked":     "getComputedStyle(document.querySelector('.card')).borderRadius != '10px'",
					"a coordinate is no number": "[...document.querySelectorAll('svg *')].some(e => [...e.attributes].some(a => /NaN|Inf/.test(a.value)))",
				} {
					if eval[bool](b, "!!("+expression+")") {
						t.Error(what)
					}
				}
				if dark := eval[bool](b, "getComputedStyle(document.body).backgroundColor == 'rgb(19, 22, 26)'"); dark != screen.dark {
					t.Errorf("dark: %v", dark)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, p := range b.problems {
					t.Errorf("the browser complains: %s", p)
				}
				for _, u := range b.urls {
					if !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "file:") {
						t.Errorf("a request goes to %s", u)
					}
				}
			})
		}
	}
}
