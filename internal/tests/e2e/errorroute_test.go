package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// runSite serves a site on the Caddy of this process until the end of the test.
func runSite(t *testing.T, global, site string) string {
	t.Helper()
	address := caddyrun.FreeAddress(t)
	t.Cleanup(func() { _ = caddy.Stop() })
	err := loadCaddy(fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n%s\n}\nhttp://%s {\n%s\n}\n", global, address, site))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func wantAnswer(t *testing.T, a caddyrun.Answer, status int, body string) {
	t.Helper()
	if a.Status != status || a.Body != body {
		t.Errorf("got %d %q, want %d %q", a.Status, a.Body, status, body)
	}
}

// A denial by concurrent comes by the error routes, with a status of its own and without Retry-After.
func TestErrorRouteConcurrent(t *testing.T) {
	for key, status := range map[string]int{"{header.X-Key}": http.StatusTooManyRequests, "all": http.StatusServiceUnavailable} {
		address := runSite(t, "", `
	sliding_window {
		zone err_concurrent {
			key `+key+`
			concurrent 0
		}
	}
	handle_errors {
		respond "{err.status_code} {err.message} {http.sliding_window.retry_after} {http.sliding_window.err_concurrent.limit}"
	}
	respond ok`)
		a := caddyrun.MustGet(t, caddyrun.NewClient(t), address, "k")
		wantAnswer(t, a, status, fmt.Sprintf("%d too many requests at the same time 0 0", status))
		if after := a.Header["Retry-After"]; after != nil {
			t.Errorf("key %s: Retry-After %q", key, after)
		}
	}
}

// A denial comes by the error routes, with its placeholders and its fields.
func TestErrorRoute(t *testing.T) {
	address := runSite(t, "", `
	sliding_window {
		zone err_all {
			key {header.X-Key}
			limit 1 1h
		}
		zone err_paid {
			key {header.X-Key}
			limit 100 1h
		}
	}
	handle_errors {
		header Content-Type application/json
		header X-Zone {http.sliding_window.zone}
		respond `+"`"+`{"code":{err.status_code},"message":"{err.message}","retry_after":{http.sliding_window.retry_after},"left":{http.sliding_window.err_paid.remaining}}`+"`"+`
	}
	respond ok`)
	client := caddyrun.NewClient(t)
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusOK, "ok")
	a := caddyrun.MustGet(t, client, address, "k")
	wait := a.Header.Get("Retry-After")
	wantAnswer(t, a, http.StatusTooManyRequests, `{"code":429,"message":"rate limit exceeded","retry_after":`+wait+`,"left":99}`)
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Zone": "err_all", "Cache-Control": "no-store",
		"RateLimit-Policy": `"err_all";q=1;w=3600, "err_paid";q=100;w=3600`,
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if wait == "" || a.Header.Get("RateLimit") == "" {
		t.Errorf("Retry-After: got %q, RateLimit %q", wait, a.Header.Get("RateLimit"))
	}
}

// An error route that answers other errors does not keep the client from the
// problem details.
func TestErrorRouteForOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		routes string
		want   string // the body's beginning
	}{
		"other status":          {"handle_errors 404 5xx {\n\t\trespond other\n\t}", `{`},
		"this status":           {"handle_errors 429 {\n\t\trespond this\n\t}", `this`},
		"this class":            {"handle_errors 4xx {\n\t\trespond class\n\t}", `class`},
		"other path":            {"handle_errors {\n\t\thandle /elsewhere {\n\t\t\trespond other\n\t\t}\n\t}", `{`},
		"another path, and all": {"handle_errors {\n\t\thandle /elsewhere {\n\t\t\trespond other\n\t\t}\n\t\thandle {\n\t\t\trespond rest\n\t\t}\n\t}", `rest`},
		"expression":            {"handle_errors {\n\t\t@it `{err.status_code} == 429 && {http.sliding_window.zone} == \"routes\"`\n\t\trespond @it it\n\t}", `it`},
		"none":                  {"", `{`},
	} {
		t.Run(name, func(t *testing.T) {
			address := runSite(t, "", "\tsliding_window routes static 0 1h\n\t"+c.routes)
			a := caddyrun.MustGet(t, caddyrun.NewClient(t), address, "")
			if a.Status != http.StatusTooManyRequests || !strings.HasPrefix(a.Body, c.want) {
				t.Errorf("got %d %q, want 429 %s…", a.Status, a.Body, c.want)
			}
			if problem := a.Header.Get("Content-Type") == "application/problem+json"; problem != (c.want == `{`) {
				t.Errorf("Content-Type: got %s", a.Header.Get("Content-Type"))
			}
		})
	}
}

// A limit in an error route answers by itself: Caddy asks no other handler.
func TestLimitInErrorRoute(t *testing.T) {
	address := runSite(t, "", `
	error 502
	handle_errors {
		sliding_window in_errors {header.X-Key} 1 1h
		respond "{err.status_code}"
	}`)
	client := caddyrun.NewClient(t)
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusBadGateway, "502")
	a := caddyrun.MustGet(t, client, address, "k")
	if a.Status != http.StatusTooManyRequests || a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %q, %v, want 429 with a problem and Retry-After", a.Status, a.Body, a.Header)
	}
}

// The status goes to the error route, too.
func TestErrorRouteStatus(t *testing.T) {
	address := runSite(t, "", `
	sliding_window err_status static 0 1h {
		status 420
	}
	handle_errors {
		respond "{err.status_code} {err.status_text}"
	}`)
	wantAnswer(t, caddyrun.MustGet(t, caddyrun.NewClient(t), address, ""), 420, "420 ")
}

// Two handlers in a chain: later handlers see both, and the second is not asked
// once the first has denied.
func TestChain(t *testing.T) {
	address := runSite(t, "", `
	route {
		sliding_window chain_one {header.X-Key} 2 1h
		sliding_window chain_two {header.X-Key} 5 1h
		respond "{http.sliding_window.zone} {http.sliding_window.remaining} {http.sliding_window.chain_one.remaining} {http.sliding_window.chain_two.remaining}"
	}
	handle_errors {
		respond "{http.sliding_window.zone} {http.sliding_window.chain_one.remaining} {http.sliding_window.chain_two.remaining}"
	}`)
	client := caddyrun.NewClient(t)
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusOK, "chain_two 4 1 4")
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusOK, "chain_two 3 0 3")
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusTooManyRequests, "chain_one 0 ")
	wantAnswer(t, caddyrun.MustGet(t, client, address, "other"), http.StatusOK, "chain_two 4 1 4")
}

// A snippet that two sites import is one counter.
func TestSnippetIsOneCounter(t *testing.T) {
	other := caddyrun.FreeAddress(t)
	address := runSite(t, "}\n(limit) {\n\tsliding_window snippet {header.X-Key} 2 1h",
		"\timport limit\n\trespond one\n}\nhttp://"+other+" {\n\timport limit\n\trespond two")
	client := caddyrun.NewClient(t)
	wantAnswer(t, caddyrun.MustGet(t, client, address, "k"), http.StatusOK, "one")
	wantAnswer(t, caddyrun.MustGet(t, client, other, "k"), http.StatusOK, "two")
	if a := caddyrun.MustGet(t, client, address, "k"); a.Status != http.StatusTooManyRequests {
		t.Errorf("got %d, want 429", a.Status)
	}
}

// It counts before the password is looked at.
func TestBeforeBasicAuth(t *testing.T) {
	address := runSite(t, "", `
	basic_auth {
		Bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
	}
	sliding_window guesses {client_ip} 2 1h
	respond secret`)
	client := caddyrun.NewClient(t)
	for i, want := range []int{401, 401, 429} {
		if a := caddyrun.MustGet(t, client, address, ""); a.Status != want {
			t.Errorf("guess %d: got %d, want %d", i+1, a.Status, want)
		}
	}
}

// runDenying runs a site whose store is away, on which on_error deny decides.
func runDenying(t *testing.T, site string) (address string) {
	t.Helper()
	return runSite(t, `
	log {
		output sliding_window_test
		level INFO
	}
	sliding_window {
		store redis redis://`+caddyrun.FreeAddress(t)+`
		on_error deny
	}`, site)
}

// on_error deny answers without a line in the log for each request.
func TestDenyLogsNoRequest(t *testing.T) {
	address := runDenying(t, `
	sliding_window deny_log static 5 1h
	respond ok`)
	client := caddyrun.NewClient(t)
	caddyLog.Reset()
	for range 50 {
		if a := caddyrun.MustGet(t, client, address, ""); a.Status != http.StatusServiceUnavailable {
			t.Errorf("got %d, want 503", a.Status)
		}
	}
	_ = caddy.Stop()
	text := caddyLog.String()
	if strings.Contains(text, `"level":"error"`) {
		t.Errorf("the log holds errors:\n%s", text)
	}
	if n := strings.Count(text, "store is unavailable"); n != 1 {
		t.Errorf("%d lines of the outage, want 1:\n%s", n, text)
	}
}

// on_error deny comes by the error routes, without a line in the log for each request.
func TestUnavailableInErrorRoute(t *testing.T) {
	for name, c := range map[string]struct{ routes, want string }{
		"all":    {"handle_errors {\n\t\trespond \"{err.status_code} {err.message}\"\n\t}", "503 the rate limit cannot be checked at the moment"},
		"5xx":    {"handle_errors 5xx {\n\t\trespond sorry\n\t}", "sorry"},
		"others": {"handle_errors 429 {\n\t\trespond other\n\t}", `{"detail"`},
	} {
		t.Run(name, func(t *testing.T) {
			address := runDenying(t, `
	sliding_window deny_routes static 5 1h
	`+c.routes+`
	respond ok`)
			client := caddyrun.NewClient(t)
			caddyLog.Reset()
			for range 20 {
				a := caddyrun.MustGet(t, client, address, "")
				if a.Status != http.StatusServiceUnavailable || !strings.HasPrefix(a.Body, c.want) {
					t.Errorf("got %d %q, want 503 %s", a.Status, a.Body, c.want)
				}
				if a.Header.Get("Retry-After") != "1" || a.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("got %v, want Retry-After and no-store", a.Header)
				}
			}
			_ = caddy.Stop()
			text := caddyLog.String()
			if strings.Contains(text, `"level":"error"`) || strings.Count(text, "store is unavailable") != 1 {
				t.Errorf("the log holds more than one line of the outage:\n%s", text)
			}
		})
	}
}

// empty_key deny has a status of its own, in the answer and in error routes.
func TestEmptyKeyStatus(t *testing.T) {
	for name, c := range map[string]struct {
		option, more, routes string
		status               int
		want                 string
	}{
		"default":      {"deny", "", "", 429, `{"detail":"The request lacks what it is counted by.","status":429,"title":"Rate limit exceeded","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["empty_status"]}`},
		"handler's":    {"deny", "status 403", "", 403, `{"detail":"The request lacks what it is counted by.","status":403,`},
		"401":          {"deny 401", "status 403", "", 401, `{"detail":"The request lacks what it is counted by.","status":401,"title":"Unauthorized","type":"about:blank","violated-policies":["empty_status"]}`},
		"without name": {"deny 499", "", "", 499, `{"detail":"The request lacks what it is counted by.","status":499,"title":"Request denied","type":"about:blank",`},
		"error route":  {"deny 401", "", "handle_errors {\n\t\trespond \"{err.status_code} {err.message}\"\n\t}", 401, "401 the request lacks what it is counted by"},
	} {
		t.Run(name, func(t *testing.T) {
			address := runSite(t, "", `
	sliding_window {
		zone empty_status {
			key {header.X-Key}
			limit 1 1h
			empty_key `+c.option+`
		}
		`+c.more+`
	}
	`+c.routes+`
	respond ok`)
			client := caddyrun.NewClient(t)
			a := caddyrun.MustGet(t, client, address, "")
			if a.Status != c.status || !strings.HasPrefix(a.Body, c.want) {
				t.Errorf("got %d %q, want %d %s", a.Status, a.Body, c.status, c.want)
			}
			if a.Header.Get("Retry-After") != "" {
				t.Errorf("got Retry-After %s, want none", a.Header.Get("Retry-After"))
			}
			key := "empty " + name
			wantAnswer(t, caddyrun.MustGet(t, client, address, key), http.StatusOK, "ok")
			want := http.StatusTooManyRequests
			if c.more != "" {
				want = http.StatusForbidden
			}
			if a := caddyrun.MustGet(t, client, address, key); a.Status != want {
				t.Errorf("above the limit: got %d, want %d", a.Status, want)
			}
		})
	}
}

// The line of the outage says what to do where rediss:// names a port without TLS.
func TestHintOfPlainPort(t *testing.T) {
	server := redistest.Start(t)
	address := runSite(t, `
	log {
		output sliding_window_test
		level INFO
	}
	sliding_window {
		store redis rediss://`+server.Addr+` {
			timeout 300ms
		}
	}`, `
	sliding_window plain_port static 500 1h
	respond ok`)
	client := caddyrun.NewClient(t)
	caddyLog.Reset()
	for range 5 {
		wantAnswer(t, caddyrun.MustGet(t, client, address, ""), http.StatusOK, "ok")
	}
	caddyrun.Eventually(t, 20*time.Second, "the hint in the log", func() bool {
		return strings.Contains(caddyLog.String(), `"hint":"if the server does not speak TLS at this port, write redis:// in place of rediss://, or take tls out"`)
	})
}
