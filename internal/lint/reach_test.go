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
	for seed := range uint64(400) {
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
	if found < 100 || found*2 < unreached {
		t.Errorf("lint found %d of %d zones that counted nothing", found, unreached)
	}
}
