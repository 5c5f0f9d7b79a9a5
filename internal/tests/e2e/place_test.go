package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// What rewrites, redirects and strips does so after the zone, which sees the path that the
// client sent.
func TestZoneSeesWhatTheClientSent(t *testing.T) {
	client := caddyrun.NewClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "index.html"), []byte("ok"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, site := range map[string]string{
		"try_files":   "root " + root + "\ntry_files {path} /index.html\nfile_server",
		"rewrite":     "rewrite * /index.html\nrespond ok",
		"uri":         "uri strip_prefix /login\nrespond ok",
		"uri replace": "uri replace /login /\nrespond ok",
		"redir":       "redir /login /elsewhere",
		"method":      "method PUT\nrespond ok",
		"handle_path": "handle_path /login {\nrespond ok\n}",
		"handle":      "handle {\nrewrite * /index.html\nrespond ok\n}",
		"route":       "route {\nrewrite * /index.html\nrespond ok\n}",
	} {
		t.Run(name, func(t *testing.T) {
			address := runSite(t, "", "\n"+site+`
	sliding_window {
		zone `+strings.ReplaceAll(t.Name(), "/", ".")+` {
			match {
				method GET
				path /login
			}
			limit 2 1h
		}
	}`)
			for i, want := range []bool{false, false, true} {
				resp, err := client.Get("http://" + address + "/login")
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if denied := resp.StatusCode == http.StatusTooManyRequests; denied != want {
					t.Errorf("request %d: got status %d, want denied %t", i+1, resp.StatusCode, want)
				}
			}
		})
	}
}

// restoresOrder puts sliding_window in its place when a test with the global option order has ended. Caddys before v2.11 keep the
// order of one Caddyfile for those that they read after it.
func restoresOrder(t *testing.T) {
	t.Cleanup(func() {
		if _, err := adapt(t, "{\n\torder sliding_window before redir\n}\n"); err != nil {
			t.Error(err)
		}
	})
}

// A route, or the global option order, places the directive otherwise.
func TestPlacedOtherwise(t *testing.T) {
	zone := `sliding_window {
		zone %s {
			match path /index.html
			limit 2 1h
		}
	}`
	restoresOrder(t)
	for name, c := range map[string]struct{ global, site string }{
		"route": {"", "route {\nrewrite * /index.html\n" + zone + "\nrespond ok\n}"},
		"order": {"order sliding_window after try_files", "rewrite * /index.html\n" + zone + "\nrespond ok"},
	} {
		t.Run(name, func(t *testing.T) {
			address := runSite(t, c.global, fmt.Sprintf(c.site, strings.ReplaceAll(t.Name(), "/", ".")))
			client := caddyrun.NewClient(t)
			for i, want := range []int{200, 200, 429} {
				if a := caddyrun.MustGet(t, client, address, "k"); a.Status != want {
					t.Errorf("request %d: got %d, want %d", i+1, a.Status, want)
				}
			}
		})
	}
}

// Inside handle_path, the beginning of paths is gone: a zone that matches it says so.
func TestPathsTakenOff(t *testing.T) {
	zone := func(match string) string {
		return "sliding_window {\nzone taken {\n" + match + "\nlimit 1 1h\n}\n}"
	}
	warning := func(path, prefix string) string {
		return fmt.Sprintf(`"msg":"the zone's path matcher can never match: handle_path or strip_prefix already stripped the prefix; match what is left","zone":"taken","path":"%s","taken_off":"%s"`, path, prefix)
	}
	for _, c := range []struct {
		name, site string
		want       []string
	}{
		{"path", "handle_path /api/* {\n" + zone("match path /api/login") + "\n}", []string{warning("/api/login", "/api")}},
		{"several", "handle_path /api/* {\n" + zone("match path /a /api/* /API /apis") + "\n}", []string{warning("/api/*", "/api"), warning("/API", "/api")}},
		{"regexp", "handle_path /api/* {\n" + zone("match path_regexp ^/api/v[0-9]/login$") + "\n}", []string{warning("/api/v[0-9]/login$", "/api")}},
		{"expression", "handle_path /api/* {\n" + zone("match expression `path('/api/login') && method('POST')`") + "\n}", []string{warning("/api/login", "/api")}},
		{"not", "handle_path /api/* {\n" + zone("match {\nnot path /api/health\n}") + "\n}", []string{warning("/api/health", "/api")}},
		{"block", "handle_path /api/* {\n" + zone("match {\nmethod POST\npath /api/login\n}") + "\n}", []string{warning("/api/login", "/api")}},
		{"nested", "handle_path /api/* {\nhandle_path /v1/* {\n" + zone("match path /api/v1/login") + "\n}\n}", []string{warning("/api/v1/login", "/api/v1")}},
		{"in a handle", "handle_path /api/* {\nhandle {\n" + zone("match path /api/login") + "\n}\n}", []string{warning("/api/login", "/api")}},
		{"after a respond", "handle_path /api/* {\nrespond /x ok\n" + zone("match path /api/login") + "\n}", []string{warning("/api/login", "/api")}},
		{"matcher of the directive", "handle_path /api/* {\nsliding_window /api/login taken {client_ip} 1 1h\n}", []string{warning("/api/login", "/api")}},
		{"matcher on the way", "handle_path /api/* {\nhandle /api/login {\nsliding_window taken {client_ip} 1 1h\n}\n}", []string{warning("/api/login", "/api")}},
		{"route", "route {\nuri strip_prefix /api\n" + zone("match path /api/login") + "\n}", []string{warning("/api/login", "/api")}},

		{"what is left", "handle_path /api/* {\n" + zone("match path /login") + "\n}", nil},
		{"no matcher", "handle_path /api/* {\nsliding_window taken {client_ip} 1 1h\n}", nil},
		{"outside", zone("match path /api/login") + "\nhandle_path /api/* {\nrespond ok\n}", nil},
		{"beside", "handle_path /api/* {\nrespond ok\n}\nhandle /api/* {\n" + zone("match path /api/login") + "\n}", nil},
		{"handle", "handle /api/* {\n" + zone("match path /api/login") + "\n}", nil},
		{"before in a route", "route {\n" + zone("match path /api/login") + "\nuri strip_prefix /api\n}", nil},
		{"only at times", "route {\nuri /old/* strip_prefix /old\n" + zone("match path /old/x") + "\n}", nil},
		{"another prefix", "handle_path /api/* {\n" + zone("match path /apis/login") + "\n}", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, address := range []string{"http://", "http://one.test"} {
				config, err := adaptAnyFormat(address + " {\n" + c.site + "\n}\n")
				if err != nil {
					t.Fatal(err)
				}
				wantWarnings(t, warned(t, config), c.want...)
			}
		})
	}
}

// A zone that counts by who has logged in says so if the log-in comes after it.
func TestBeforeAuthentication(t *testing.T) {
	const (
		zone  = "sliding_window users {http.auth.user.id} 9 1h\n"
		login = "basic_auth {\nBob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"
	)
	for _, c := range []struct {
		name, site string
		warns      bool
	}{
		{"default order", login + zone, true},
		{"skipped", login + "sliding_window {\nzone users {\nkey {http.auth.user.id}\nlimit 9 1h\nempty_key skip\n}\n}\n", true},
		{"log-in for a part", "basic_auth /a/* {\nBob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n" + zone, true},
		{"route, wrong way round", "route {\n" + zone + login + "}\n", true},
		{"log-in in a handle", "handle {\n" + login + "}\n" + zone, true},

		{"route", "route {\n" + login + zone + "}\n", false},
		{"handle after the log-in", login + "handle {\n" + zone + "}\n", false},
		{"before and after", "route {\n" + login + zone + login + "}\n", false},
		{"another one's log-in", zone, false},
		{"one handle or the other", "handle /a {\n" + zone + "}\nhandle /b {\n" + login + "}\n", false},
		{"by address", login + "sliding_window users {client_ip} 9 1h\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []string
			if c.warns {
				want = []string{`"msg":"placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first","zone":"users","option":"key","placeholder":"{http.auth.user.id}"`}
			}
			for _, sites := range []string{"http:// {\n%s}\n", "http://one.test {\n%s}\n", "http://one.test {\n%s}\nhttp://two.test {\n" + login + "}\n"} {
				config, err := adaptAnyFormat(fmt.Sprintf(sites, c.site+"\nrespond ok\n"))
				if err != nil {
					t.Fatal(err)
				}
				wantWarnings(t, warned(t, config), want...)
			}
		})
	}
}

// adaptAnyFormat is adapt for a Caddyfile that is not indented.
func adaptAnyFormat(text string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return config, err
}
