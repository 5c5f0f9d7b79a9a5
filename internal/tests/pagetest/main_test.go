package pagetest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

var screenshots = flag.Bool("screenshots", false, "write the screenshots of the documents")

func TestMain(m *testing.M) {
	os.Exit(caddyrun.Main(m, func() {}))
}

// chromium returns the browser; scripts/install-chromium.sh brings it.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Fatal("there is no chromium: run scripts/install-chromium.sh")
	return ""
}

// site is a Caddy with zones, and a page that shows them.
type site struct {
	*testing.T
	caddy  *caddyrun.Process
	client *http.Client
	addr   string // of the site
	page   string // URL
}

// newSite runs Caddy with these zones in one directive, and the command page.
func newSite(t *testing.T, zones string) *site {
	t.Helper()
	s := &site{T: t, client: caddyrun.NewClient(t), addr: caddyrun.FreeAddress(t)}
	s.caddy = caddyrun.Start(t, fmt.Sprintf("{\nadmin {admin}\npersist_config off\nauto_https off\nstorage_clean_interval off\n}\nhttp://%s {\nhandle /healthz {\nrespond ok\n}\nhandle {\nsliding_window {\n%s\n}\nrespond ok\n}\n}\n", s.addr, zones), s.addr)
	cmd := exec.Command(caddyrun.Binary(t), "sliding-window", "page", "--address", s.caddy.Admin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.page = strings.TrimSpace(line)
	return s
}

// get asks the site with a key for the zone that a path belongs to.
func (s *site) get(path, key string) {
	req, err := http.NewRequest(http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("X-Key", key)
	resp, err := s.client.Do(req)
	if err != nil {
		s.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// cli runs a command of caddy sliding-window.
func (s *site) cli(args ...string) {
	s.Helper()
	args = append([]string{"sliding-window"}, append(args, "--address", s.caddy.Admin)...)
	if out, err := exec.Command(caddyrun.Binary(s), args...).CombinedOutput(); err != nil {
		s.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// browser is a tab of Chromium, with what it has complained of and asked for.
type browser struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
	urls     []string
}

func newBrowser(t *testing.T, width, height int, dark bool) *browser {
	t.Helper()
	b := &browser{T: t}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height), chromedp.NoSandbox,
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	allocator, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithListener(b.note))
	b.ctx = ctx
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		end()
		endAll()
	})
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []error{
		second(chromedp.Call(ctx, network.Enable, network.EnableParams{})),
		second(chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})),
		second(chromedp.Call(ctx, runtime.Enable, cdp.Empty{})),
	} {
		if enable != nil {
			t.Fatal(enable)
		}
	}
	return b
}

func second[T any](_ T, err error) error { return err }

func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.urls = append(b.urls, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.urls = append(b.urls, e.URL)
	case *cdplog.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("console.%s", e.Type))
	}
}

// run makes steps, one after the other.
func (b *browser) run(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// eval evaluates an expression of JavaScript on the page.
func eval[T any](b *browser, expression string) T {
	b.Helper()
	return get(b, chromedp.Evaluate[T](expression))
}

// get makes a step that has a result.
func get[T any](b *browser, step chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, step)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

// until waits for an expression of JavaScript to be true.
func (b *browser) until(patience time.Duration, expression string) {
	b.Helper()
	caddyrun.Eventually(b, patience, expression, func() bool { return eval[bool](b, "!!("+expression+")") })
}

// checkQuiet wants no complaint, and no request but to the page.
func (b *browser) checkQuiet(page string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("the browser complains: %s", p)
	}
	own, err := url.Parse(page)
	if err != nil {
		b.Fatal(err)
	}
	asked := 0
	for _, u := range b.urls {
		to, err := url.Parse(u)
		if err != nil || to.Scheme != "data" && to.Host != own.Host {
			b.Errorf("a request goes to %s", u)
		}
		asked++
	}
	if asked < 3 {
		b.Errorf("the browser asked %d times", asked)
	}
}
