package lint_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/slidingwindow/caddy-sliding-window/internal/lint"
)

// routesOf writes random routes with zones.
type routesOf struct {
	*rand.Rand
	text  strings.Builder
	zones int
}

func (r *routesOf) one(words ...string) string { return words[r.IntN(len(words))] }

func (r *routesOf) path() string {
	return r.one("/a", "/a/*", "/a/b", "/a*", "/b", "/b/*", "/c/d", "/c/*", "/*", "*/b", "/A/B")
}

// matcher writes a matcher of a directive, and returns its name.
func (r *routesOf) matcher() string {
	switch r.IntN(6) {
	case 0:
		return ""
	case 1, 2:
		if path := r.path(); path[0] == '/' {
			return path
		}
	}
	name := fmt.Sprintf("@m%d", r.Int64())
	fmt.Fprintf(&r.text, "%s {\n", name)
	r.conditions()
	r.text.WriteString("}\n")
	return name
}

func (r *routesOf) conditions() {
	before := r.text.Len()
	if r.IntN(3) > 0 {
		fmt.Fprintf(&r.text, "path %s %s\n", r.path(), r.path())
	}
	if r.IntN(5) == 0 {
		fmt.Fprintf(&r.text, "method %s\n", r.one("GET", "POST", "GET POST"))
	}
	if r.IntN(5) == 0 {
		fmt.Fprintf(&r.text, "host %s\n", r.one("one.test", "two.test", "one.test two.test", "*.test"))
	}
	if r.IntN(5) == 0 {
		fmt.Fprintf(&r.text, "not path %s\n", r.path())
	}
	if r.text.Len() == before {
		r.text.WriteString("protocol http\n")
	}
}

func (r *routesOf) block(depth int) {
	for range 1 + r.IntN(4) {
		kind := r.IntN(9)
		if depth == 0 && kind < 4 {
			kind += 4
		}
		switch kind {
		case 0, 1:
			m := r.matcher()
			fmt.Fprintf(&r.text, "handle %s {\n", m)
			r.block(depth - 1)
			r.text.WriteString("}\n")
		case 2:
			fmt.Fprintf(&r.text, "handle_path %s {\n", r.one("/a/*", "/c/*"))
			r.block(depth - 1)
			r.text.WriteString("}\n")
		case 3:
			m := r.matcher()
			fmt.Fprintf(&r.text, "route %s {\n", m)
			r.block(depth - 1)
			r.text.WriteString("}\n")
		case 4:
			m := r.matcher()
			fmt.Fprintf(&r.text, "respond %s ok\n", m)
		case 5:
			m := r.matcher()
			fmt.Fprintf(&r.text, "%s\n", r.one("rewrite "+m+" /a/b", "error "+m+" 404", "vars x y", "header "+m+" X y", "uri strip_prefix /a"))
		default:
			m := r.matcher()
			fmt.Fprintf(&r.text, "sliding_window %s {\nzone z%d {\n", m, r.zones)
			r.zones++
			if r.IntN(3) > 0 {
				r.text.WriteString("match {\n")
				r.conditions()
				r.text.WriteString("}\n")
			}
			r.text.WriteString("limit 100000 1m\n}\n}\n")
		}
	}
}

// In random routes, no request is counted by a zone of which lint says that none is.
func TestUnreachable(t *testing.T) {
	unreached, found := 0, 0
	for seed := range uint64(100) {
		r := &routesOf{Rand: rand.New(rand.NewPCG(seed, 1))}
		r.text.WriteString("http://:8080 {\nroute {\n")
		r.block(3)
		r.text.WriteString("}\n}\n")
		caddyfile := r.text.String()
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
		if err != nil {
			t.Fatalf("%v\n%s", err, caddyfile)
		}
		c, closeAll, err := lint.Load(config)
		if err != nil {
			t.Fatalf("%v\n%s", err, caddyfile)
		}
		counted := make(map[string]bool)
		for _, server := range c.App().Servers {
			for _, path := range []string{"/", "/a", "/a/", "/a/b", "/A/B", "/a/b/c", "/ab", "/b", "/b/b", "/b/x", "/c", "/c/d", "/c/a", "/c/a/b", "/a/a", "/a/a/b", "/a/c/d", "/c/c/d", "/d", "/a/x", "/c/b"} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					for _, host := range []string{"one.test", "two.test", "other.test", "else"} {
						w := httptest.NewRecorder()
						server.ServeHTTP(w, httptest.NewRequest(method, "http://"+host+path, nil))
						for z := range r.zones {
							if strings.Contains(strings.Join(w.Header().Values("RateLimit-Policy"), ","), fmt.Sprintf(`"z%d"`, z)) {
								counted[fmt.Sprint("z", z)] = true
							}
						}
					}
				}
			}
		}
		said := make(map[string]bool)
		for _, f := range lint.Check(c, nil).Findings {
			if f.Code == "SW001" {
				said[f.Zone] = true
				if counted[f.Zone] {
					t.Errorf("zone %s counts requests, but lint says: %s\n%s", f.Zone, f.What, caddyfile)
				}
			}
		}
		closeAll()
		unreached += r.zones - len(counted)
		found += len(said)
		if t.Failed() {
			return
		}
	}
	t.Logf("lint found %d of %d zones that counted nothing", found, unreached)
	if found < 50 || found*2 < unreached {
		t.Errorf("lint found %d of %d zones that counted nothing", found, unreached)
	}
}

// Requests that one route of a group lets through, or that one of several matchers matches, come to the zone.
func TestReachable(t *testing.T) {
	const zone = `sliding_window {
			zone z {
				match {
					path /a
				}
				limit 5 1m
			}
		}`
	json := func(match string) string {
		return `{"apps":{"http":{"servers":{"s":{"routes":[{"match":` + match + `,"handle":[{"handler":"sliding_window","zones":[{"name":"z","match":[{"path":["/a"]}],"limits":[{"max":5,"window":"1m"}]}]}]}]}}}}}`
	}
	for text, want := range map[string]bool{
		"handle /a* {\n\theader X y\n}\nhandle {\n\trespond ok\n}\n" + zone:    true,
		"handle /a* {\n\trespond ok\n}\nhandle {\n\theader X y\n}\n" + zone:    false,
		"handle /a {\n\theader X y\n}\nhandle /a* {\n\trespond ok\n}\n" + zone: true,
		"handle /b {\n\theader X y\n}\nhandle /a* {\n\trespond ok\n}\n" + zone: true, // lint does not look at what the group takes
		"handle /a* {\n\trespond ok\n}\nhandle /b {\n\theader X y\n}\n" + zone: false,
		"respond ok\n" + zone:                                         false,
		"@post method POST\nrespond @post ok\n" + zone:                true,
		"rewrite /a /b\n" + zone:                                      true,
		"forward_auth localhost:1 {\n\turi /\n}\n" + zone:             true,
		"reverse_proxy localhost:1\n" + zone:                          false,
		"file_server {\n\tpass_thru\n}\n" + zone:                      true,
		json(`[{"not":[{"path":["/a"]}]},{"path":["/a"]}]`):           true,
		json(`[{"not":[{"path":["/a"]}]},{"not":[{"path":["/a"]}]}]`): true, // of several sets, lint looks at paths, methods and hosts alone
		json(`[{"not":[{"path":["/a"]}]}]`):                           false,
		json(`[{"path":["/b"]},{"path":["/c"]}]`):                     false,
		json(`[{"path":["/b"]},{"method":["GET"]}]`):                  true,
	} {
		config := []byte(text)
		if text[0] != '{' {
			var err error
			config, _, err = caddyconfig.GetAdapter("caddyfile").Adapt([]byte("http://:8080 {\nroute {\n"+text+"\n}\n}\n"), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
		c, closeAll, err := lint.Load(config)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got := true
		for _, f := range lint.Check(c, nil).Findings {
			got = got && f.Code != "SW001"
		}
		closeAll()
		if got != want {
			t.Errorf("reachable is %v, want %v:\n%s", got, want, text)
		}
	}
}
