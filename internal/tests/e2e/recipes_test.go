package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// recipe is a site that serves a Caddyfile of the documents.
type recipe struct {
	testing.TB
	client  *http.Client
	address string
	backend string // host:port
	loaded  bool   // and nothing has been answered since
}

// serveBlock serves the n-th Caddyfile, from 1 on, below a heading of a document, with
// texts replaced in turn, until the end of the test.
func serveBlock(t testing.TB, document, heading string, n int, replace ...string) *recipe {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(backend.Close)
	r := &recipe{TB: t, client: caddyrun.NewClient(t), address: caddyrun.FreeAddress(t), backend: backend.Listener.Addr().String()}
	t.Cleanup(func() { _ = caddy.Stop() })
	r.load(blockBelow(t, document, heading, n), replace...)
	return r
}

// echo answers with what Caddy has sent.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Cache-Control", "max-age=60")
	_, _ = fmt.Fprintf(w, "%s %s customer=%s body=%s", r.Method, r.URL.Path, r.Header.Get("X-Customer"), body)
}

// load serves another Caddyfile in the place of the one before, as a reload does.
func (r *recipe) load(caddyfile string, replace ...string) {
	r.Helper()
	if !strings.Contains(caddyfile, ":8080 {") { // it has global options alone
		caddyfile += "\n:8080 {\n\tsliding_window per_client {client_ip} 100 1m\n\treverse_proxy localhost:9000\n}\n"
	}
	// The global options of the test; clients choose their address by X-Forwarded-For.
	options := "\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n"
	if !strings.Contains(caddyfile, "\tservers {") {
		options += "\tservers {\n\t\ttrusted_proxies static 127.0.0.0/8\n\t}\n"
	}
	if rest, found := strings.CutPrefix(caddyfile, "{\n"); found {
		caddyfile = "{\n" + options + rest
	} else {
		caddyfile = "{\n" + options + "}\n" + caddyfile
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(caddyfile, replace[i]) {
			r.Fatalf("there is no %q in\n%s", replace[i], caddyfile)
		}
		caddyfile = strings.ReplaceAll(caddyfile, replace[i], replace[i+1])
	}
	caddyfile = strings.NewReplacer(":8080 {", "http://"+r.address+" {", "localhost:9000", r.backend).Replace(caddyfile)
	if err := loadCaddy(caddyfile); err != nil {
		r.Fatalf("%v\n%s", err, caddyfile)
	}
	r.loaded = true
}

// ask sends a request with header fields, name after name.
func (r *recipe) ask(method, path string, header ...string) caddyrun.Answer {
	r.Helper()
	req, err := http.NewRequest(method, "http://"+r.address+path, strings.NewReader(""))
	if err != nil {
		r.Fatal(err)
	}
	return r.do(req, header...)
}

func (r *recipe) do(req *http.Request, header ...string) caddyrun.Answer {
	r.Helper()
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	for range 10 {
		if err == nil || !r.loaded {
			break
		}
		// The configuration before closes its connections, without an answer.
		r.client.CloseIdleConnections()
		resp, err = r.client.Do(req)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.loaded = false
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return caddyrun.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
}

// want asks n times and wants a status each time; it returns the last answer.
func (r *recipe) want(n, status int, method, path string, header ...string) caddyrun.Answer {
	r.Helper()
	var last caddyrun.Answer
	for i := range n {
		if last = r.ask(method, path, header...); last.Status != status {
			r.Fatalf("request %d, %s %s with %q: %d %s, want %d", i+1, method, path, header, last.Status, last.Body, status)
		}
	}
	return last
}

// from is the header of a request from an address.
func from(address string) []string { return []string{"X-Forwarded-For", address} }

const recipes = "docs/recipes.md"

func TestRecipes(t *testing.T) {
	const get, post = http.MethodGet, http.MethodPost
	t.Run("log-in form", func(t *testing.T) {
		r := serveBlock(t, recipes, "A log-in form, by address and by account", 1)
		r.want(3, 200, post, "/login?account=Anna", from("203.0.113.1")...)
		r.want(2, 200, post, "/login?account=%20anna%20", from("203.0.113.2")...)
		denied := r.want(1, 429, post, "/login?account=anna", from("203.0.113.3")...)
		if denied.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		r.want(30, 429, post, "/login?account=anna", from("203.0.113.1")...) // costs nothing
		for i := range 17 {
			r.want(1, 200, post, fmt.Sprint("/login?account=", i), from("203.0.113.1")...)
		}
		r.want(10, 429, post, "/login?account=bert", from("203.0.113.1")...)
		r.want(5, 200, post, "/login?account=bert", from("203.0.113.2")...)
		r.want(1, 429, post, "/login", from("203.0.113.4")...)
		r.want(30, 200, get, "/login?account=anna", from("203.0.113.1")...)
	})
	t.Run("crawlers", func(t *testing.T) {
		r := serveBlock(t, recipes, "Crawlers from many addresses", 1, "limit 60 1m", "limit 6 1m", "limit 600 1m", "limit 10 1m", "limit 6000 1m", "limit 15 1m")
		r.want(6, 200, get, "/", from("203.0.113.1")...)
		r.want(20, 429, get, "/", from("203.0.113.1")...) // costs nothing
		r.want(4, 200, get, "/", from("203.0.113.2")...)
		r.want(1, 429, get, "/", from("203.0.113.3")...)
		r.want(5, 200, get, "/", from("203.0.1.1")...)
		r.want(1, 429, get, "/", from("203.0.2.1")...)
		r.want(1, 200, get, "/", from("203.1.2.1")...)
	})
	t.Run("failed log-ins", func(t *testing.T) {
		r := serveBlock(t, recipes, "Count only failed log-ins", 1, "\treverse_proxy",
			"\t@wrong header X-Password wrong\n\trespond @wrong 401\n\treverse_proxy")
		wrong := append(from("203.0.113.1"), "X-Password", "wrong")
		r.want(8, 200, post, "/login", from("203.0.113.1")...)
		r.want(4, 401, post, "/login", wrong...)
		r.want(20, 200, post, "/login", from("203.0.113.1")...)
		r.want(1, 401, post, "/login", wrong...)
		r.want(1, 429, post, "/login", wrong...)
		r.want(1, 429, post, "/login", from("203.0.113.1")...)
		r.want(1, 200, post, "/login", from("203.0.113.2")...)
	})
	t.Run("quotas", func(t *testing.T) {
		r := serveBlock(t, recipes, "Quotas per customer, and 401 without a key", 1)
		r.want(99, 200, get, "/", "X-Api-Key", "b7e1c0d2")
		if a := r.want(1, 200, get, "/", "X-Api-Key", "b7e1c0d2"); !strings.Contains(a.Body, "customer=anna ") {
			t.Errorf("the back end got %s", a.Body)
		}
		r.want(1, 429, get, "/", "X-Api-Key", "b7e1c0d2")
		r.want(1, 200, get, "/", "X-Api-Key", "0f4a9c55")
		if a := r.want(1, 401, get, "/"); a.Header.Get("WWW-Authenticate") != "ApiKey" {
			t.Errorf("401 with %v", a.Header)
		}
		r.want(9, 401, get, "/", "X-Api-Key", "guess")
		r.want(1, 429, get, "/", "X-Api-Key", "another guess")
		r.want(1, 200, get, "/", "X-Api-Key", "0f4a9c55")
	})
	t.Run("plans", func(t *testing.T) {
		r := serveBlock(t, recipes, "Several plans", 1)
		a := r.want(60, 200, get, "/", "X-Api-Key", "0f4a9c55")
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, "q=60;w=60") || !strings.Contains(policy, "q=2000;w=86400") {
			t.Errorf("Bert's policies are %s", policy)
		}
		r.want(1, 429, get, "/", "X-Api-Key", "0f4a9c55")
		a = r.want(61, 200, get, "/", "X-Api-Key", "b7e1c0d2")
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, "q=600;w=60") || !strings.Contains(policy, "q=100000;w=86400") {
			t.Errorf("Anna's policies are %s", policy)
		}
		r.want(1, 401, get, "/")
		r.load(blockBelow(t, recipes, "Several plans", 1), "bert 60 2000", "bert 90 2000")
		r.want(30, 200, get, "/", "X-Api-Key", "0f4a9c55")
		r.want(1, 429, get, "/", "X-Api-Key", "0f4a9c55")
		r.load(blockBelow(t, recipes, "Several plans", 1), "bert 60 2000", "bert 6o 2000")
		a = r.want(1, 429, get, "/", "X-Api-Key", "0f4a9c55")
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, "q=60;w=60") {
			t.Errorf("with a misspelt number Bert's policies are %s", policy)
		}
	})
	t.Run("something else", func(t *testing.T) {
		const heading = "Do something else than deny"
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") }))
		t.Cleanup(other.Close)
		at := []string{"localhost:9001", other.Listener.Addr().String()}
		r := serveBlock(t, recipes, heading, 1, at...)
		wantBodies := func(n int, body, path, address string) {
			t.Helper()
			for i := range n {
				if a := r.want(1, 200, get, path, from(address)...); !strings.HasPrefix(a.Body, body) || len(a.Header["Ratelimit"]) > 0 || a.Header.Get("Retry-After") != "" {
					t.Errorf("request %d from %s: %v %s, want %s", i+1, address, a.Header, a.Body, body)
				}
			}
		}
		wantBodies(60, "GET /x", "/x", "203.0.113.1")
		wantBodies(3, "other", "/x", "203.0.113.1")
		wantBodies(3, "GET /assets/x", "/assets/x", "203.0.113.1")
		wantBodies(1, "GET /x", "/x", "203.0.113.2")

		r.load(blockBelow(t, recipes, heading, 2), append(at, "limit 300 1m", "limit 3 1m", "limit 1200 1m", "limit 5 1m", "all 10 1s", "all 2 1m")...)
		for i, want := range []string{"GET", "GET", "GET", "429", "GET", "GET", "other", "429", "other", "429"} {
			a := r.ask(get, "/", from([]string{"198.51.100.1", "198.51.100.2", "198.51.100.3"}[i/4])...)
			if got := strings.Fields(fmt.Sprint(a.Body, " ", a.Status))[0]; got != want && fmt.Sprint(a.Status) != want {
				t.Errorf("request %d: got %d %s, want %s", i+1, a.Status, a.Body, want)
			}
		}

		cache := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Cache-Control")) }))
		t.Cleanup(cache.Close)
		r.load(blockBelow(t, recipes, heading, 3), "localhost:9000", cache.Listener.Addr().String())
		for i := range 32 {
			want := ""
			if i >= 30 {
				want = "only-if-cached"
			}
			if a := r.want(1, 200, get, "/", from("203.0.113.3")...); a.Body != want {
				t.Errorf("request %d: Cache-Control is %q, want %q", i+1, a.Body, want)
			}
		}
	})
	t.Run("load", func(t *testing.T) {
		cpu := 0.4
		step := loadtest.StandIn(t, func() (float64, error) { return cpu, nil }, nil)
		r := serveBlock(t, recipes, "Shed load before the back end is too slow", 1, "limit 300 1s", "limit 300 1m", "limit 100 10s", "limit 100 1m")
		step(21)
		for _, c := range []struct {
			cpu   float64
			quota string
		}{{0.4, `"everybody";q=300;w=60`}, {0.875, `"everybody";q=195;w=60`}, {1, `"everybody";q=90;w=60`}} {
			cpu = c.cpu
			step(3)
			a := r.want(1, 200, get, "/", from("203.0.113.1")...)
			if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, c.quota) || !strings.Contains(policy, `"per_client";q=100;w=60`) {
				t.Errorf("CPU at %v: policies are %s, want %s", c.cpu, policy, c.quota)
			}
		}
		r.want(87, 200, get, "/", from("203.0.113.1")...)
		if a := r.want(1, 429, get, "/", from("203.0.113.2")...); !strings.Contains(a.Body, "#temporary-reduced-capacity") {
			t.Errorf("everybody denies with %s", a.Body)
		}
	})
	t.Run("exempt", func(t *testing.T) {
		r := serveBlock(t, recipes, "Exempt networks, health checks and OPTIONS", 1)
		if a := r.want(101, 200, get, "/", from("10.1.2.3")...); a.Header.Get("RateLimit") != "" {
			t.Errorf("an exempt network is told %v", a.Header)
		}
		r.want(101, 200, get, "/", from("2001:db8:a::1")...)
		r.want(101, 200, get, "/healthz", from("203.0.113.1")...)
		r.want(101, 200, http.MethodOptions, "/", from("203.0.113.1")...)
		r.want(100, 200, get, "/", from("203.0.113.1")...)
		r.want(1, 429, get, "/", from("203.0.113.1")...)
	})
	t.Run("load balancer", func(t *testing.T) {
		const heading = "Behind a load balancer"
		r := serveBlock(t, recipes, heading, 1, "10.0.0.0/8", "127.0.0.0/8")
		for i := range 100 { // the client may have written all but the last address
			r.want(1, 200, get, "/", from(fmt.Sprintf("192.0.2.%d, 203.0.113.1", i))...)
		}
		r.want(1, 429, get, "/", from("203.0.113.1")...)
		r.want(1, 200, get, "/", from("203.0.113.2")...)
		r.load(blockBelow(t, recipes, heading, 1), "\t\ttrusted_proxies_strict\n", "", "10.0.0.0/8", "127.0.0.0/8")
		r.want(1, 200, get, "/", from("192.0.2.7, 203.0.113.1")...) // chosen by the client
		r.load(blockBelow(t, recipes, heading, 1))
		r.want(100, 200, get, "/")
		r.want(1, 429, get, "/", from("203.0.113.3")...) // of no trusted proxy
	})
	t.Run("CDN", func(t *testing.T) {
		r := serveBlock(t, recipes, "Behind a CDN", 1, "198.51.100.0/24", "127.0.0.0/8")
		r.want(100, 200, get, "/", "CF-Connecting-IP", "203.0.113.1")
		r.want(1, 429, get, "/", "CF-Connecting-IP", "203.0.113.1", "X-Forwarded-For", "192.0.2.1")
		r.want(1, 200, get, "/", "CF-Connecting-IP", "203.0.113.2")
	})
	t.Run("PROXY protocol", func(t *testing.T) {
		r := serveBlock(t, recipes, "Behind a TCP load balancer", 1, "10.0.0.0/8", "127.0.0.0/8")
		ask := func(address string) int {
			c, err := net.DialTimeout("tcp", r.address, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_, _ = fmt.Fprintf(c, "PROXY TCP4 %s 192.0.2.1 4711 80\r\nGET / HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n", address, r.address)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for i := range 100 {
			if status := ask("203.0.113.1"); status != 200 {
				t.Fatalf("request %d: %d", i+1, status)
			}
		}
		if one, other := ask("203.0.113.1"), ask("203.0.113.2"); one != 429 || other != 200 {
			t.Errorf("got %d and %d, want 429 and 200", one, other)
		}
	})
	t.Run("one route", func(t *testing.T) {
		r := serveBlock(t, recipes, "A limit for one route of many", 1)
		r.want(5, 200, get, "/reports/7/export", from("203.0.113.1")...)
		r.want(30, 429, get, "/reports/8/export", from("203.0.113.1")...)
		r.want(595, 200, get, "/reports/8", from("203.0.113.1")...)
		r.want(1, 429, get, "/reports/8", from("203.0.113.1")...)
		r.load(":8080 {\n\thandle_path /reports/* {\n\t\tsliding_window {\n\t\t\tzone inside {\n\t\t\t\tmatch {\n\t\t\t\t\tpath /*/export\n\t\t\t\t}\n" +
			"\t\t\t\tlimit 5 1h\n\t\t\t}\n\t\t}\n\t\treverse_proxy localhost:9000\n\t}\n}\n")
		r.want(5, 200, get, "/reports/7/export", from("203.0.113.1")...)
		r.want(1, 429, get, "/reports/7/export", from("203.0.113.1")...)
		r.want(6, 200, get, "/reports/7", from("203.0.113.1")...)
	})
	t.Run("gRPC", testGRPC)
	t.Run("CORS", func(t *testing.T) {
		r := serveBlock(t, recipes, "Let scripts in browsers read the fields", 1)
		r.want(101, 200, http.MethodOptions, "/", from("203.0.113.1")...)
		for _, a := range []caddyrun.Answer{
			r.want(100, 200, get, "/", from("203.0.113.1")...),
			r.want(1, 429, get, "/", from("203.0.113.1")...),
		} {
			if a.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
				t.Errorf("%d has no Access-Control-Allow-Origin: %v", a.Status, a.Header)
			}
			for name := range strings.SplitSeq(a.Header.Get("Access-Control-Expose-Headers"), ", ") {
				if a.Header.Get(name) == "" && (name != "Retry-After" || a.Status == 429) {
					t.Errorf("%d has no %q: %v", a.Status, name, a.Header)
				}
			}
		}
	})
	t.Run("watch", func(t *testing.T) {
		r := serveBlock(t, recipes, "Watch a limit before it denies", 1)
		r.want(100, 200, post, "/x", from("203.0.113.1")...)
		req, err := http.NewRequest(post, "http://"+r.address+"/x", strings.NewReader("all of it"))
		if err != nil {
			t.Fatal(err)
		}
		a := r.do(req, from("203.0.113.1")...)
		if a.Status != 200 || a.Body != "POST /x customer= body=all of it" {
			t.Errorf("above the limit that is watched: %d %s", a.Status, a.Body)
		}
		if a.Header.Get("Retry-After") != "" || a.Header.Get("RateLimit-Policy") != `"per_client";q=300;w=60` {
			t.Errorf("above the limit that is watched: %v", a.Header)
		}
		if control := strings.Join(a.Header["Cache-Control"], ", "); control != "max-age=60" {
			t.Errorf("above the limit that is watched: Cache-Control %s", control)
		}
		r.want(199, 200, post, "/x", from("203.0.113.1")...)
		if a := r.want(1, 429, post, "/x", from("203.0.113.1")...); !strings.Contains(a.Body, `"violated-policies":["per_client"]`) {
			t.Errorf("above the limit in force: %s", a.Body)
		}
		want := [5]float64{100, 200, 0, 0, 0}
		caddyrun.Eventually(t, 20*time.Second, "candidate would have denied 200 requests", func() bool {
			return shadowOutcomes(t, "candidate") == want
		})
		r.load(blockBelow(t, recipes, "Watch a limit before it denies", 1), "enforce shadow", "enforce on")
		r.want(100, 200, get, "/", from("203.0.113.2")...)
		r.want(1, 429, get, "/", from("203.0.113.2")...)
	})
}

// testGRPC asks as a gRPC client does: over HTTP/2 without TLS.
func testGRPC(t *testing.T) {
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}))
	backend.Config.Protocols = h2c
	backend.Start()
	t.Cleanup(backend.Close)
	r := serveBlock(t, recipes, "RESOURCE_EXHAUSTED for gRPC", 1, "h2c://localhost:9000", "h2c://"+backend.Listener.Addr().String())
	transport := &http.Transport{Protocols: h2c}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	r.want(100, 200, http.MethodPost, "/mail.Service/Send", "Content-Type", "application/grpc")
	a := r.want(1, 200, http.MethodPost, "/mail.Service/Send", "Content-Type", "application/grpc+proto")
	for name, want := range map[string]string{
		"Content-Type": "application/grpc", "Grpc-Status": "8", "Grpc-Message": "rate limit exceeded; try again in " + a.Header.Get("Retry-After") + " s",
	} {
		if a.Header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, a.Header.Get(name), want)
		}
	}
	if a.Body != "" {
		t.Errorf("the answer has a body: %q", a.Body)
	}
	if a := r.want(1, 429, http.MethodPost, "/mail.Service/Send"); a.Header.Get("Grpc-Status") != "" {
		t.Errorf("an answer to others has %v", a.Header)
	}
}

// TestMigrated asks what docs/migrating.md puts in the place of other limiters.
func TestMigrated(t *testing.T) {
	const document, get = "docs/migrating.md", http.MethodGet
	// burst counts what passes of requests that come at once, and wants what leaks in the
	// meantime at most beside the burst.
	burst := func(r *recipe, most int, every time.Duration, path string, header ...string) {
		t.Helper()
		began, passed := time.Now(), 0
		for range 3 * most {
			if r.ask(get, path, header...).Status == http.StatusOK {
				passed++
			}
		}
		if leaked := int(time.Since(began)/every) + 1; passed < most || passed > most+leaked {
			t.Errorf("%s: %d passed, want %d, and %d more at most", path, passed, most, leaked)
		}
	}
	t.Run("caddy-ratelimit", func(t *testing.T) {
		server := redistest.Start(t)
		r := serveBlock(t, document, "From mholt/caddy-ratelimit", 1, "redis.internal:6379", server.Addr)
		r.want(100, 200, get, "/api/x", from("203.0.113.1")...)
		r.want(30, 200, get, "/x", from("203.0.113.1")...)
		a := r.want(1, 429, get, "/api/x", from("203.0.113.1")...)
		if a.Body != "too many requests in api" {
			t.Errorf("the error route answers %q", a.Body)
		}
	})
	t.Run("nginx", func(t *testing.T) {
		r := serveBlock(t, document, "From nginx limit_req", 1, "10.0.0.0/8", "127.0.0.0/8")
		burst(r, 21, time.Second/10, "/", from("203.0.113.1")...)
		burst(r, 6, 2*time.Second, "/api/", append(from("203.0.113.2"), "X-Api-Key", "k")...)
		burst(r, 21, time.Second/10, "/api/", from("203.0.113.3")...) // without a key
		burst(r, 21, time.Second/10, "/", from("2001:db8::1")...)
		burst(r, 21, time.Second/10, "/", from("2001:db8::2")...)
	})
	t.Run("Traefik", func(t *testing.T) {
		server := redistest.Start(t)
		r := serveBlock(t, document, "From Traefik rateLimit", 1, "10.0.0.0/8", "127.0.0.0/8", "redis.internal:6379", server.Addr)
		for key := range 20 { // no key is used up before the address is
			r.want(10, 200, get, "/", append(from("203.0.113.1"), "X-Api-Key", fmt.Sprint(key))...)
		}
		burst(r, 10, 10*time.Second, "/", append(from("203.0.113.2"), "X-Api-Key", "k")...)
		burst(r, 10, 10*time.Second, "/", from("203.0.113.3")...)
		r.want(1, 429, get, "/", from("203.0.113.4")...) // who has no key either
	})
	t.Run("Envoy", func(t *testing.T) {
		server := redistest.Start(t)
		r := serveBlock(t, document, "From Envoy", 1, "10.0.0.0/8", "127.0.0.0/8", "redis.internal:6379", server.Addr)
		a := r.want(100, 200, get, "/", append(from("203.0.113.1"), "X-Api-Key", "k")...)
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, `"api_key";q=5000;w=3600`) {
			t.Errorf("the policies are %s", policy)
		}
		r.want(1, 429, get, "/", append(from("203.0.113.1"), "X-Api-Key", "k")...)
		a = r.want(1, 200, get, "/", from("203.0.113.2")...)
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); strings.Contains(policy, "api_key") {
			t.Errorf("without a key the policies are %s", policy)
		}
	})
	t.Run("Kong", func(t *testing.T) {
		server := redistest.Start(t)
		r := serveBlock(t, document, "From Kong rate-limiting", 1, "redis.internal:6379", server.Addr)
		a := r.want(60, 200, get, "/", "apikey", "b7e1c0d2")
		if policy := strings.Join(a.Header["Ratelimit-Policy"], ", "); !strings.Contains(policy, "q=60;w=60") || !strings.Contains(policy, "q=1000;w=3600") {
			t.Errorf("the policies are %s", policy)
		}
		r.want(1, 429, get, "/", "apikey", "b7e1c0d2")
		r.want(70, 401, get, "/", "apikey", "another")
	})
	t.Run("Cloudflare", func(t *testing.T) {
		r := serveBlock(t, document, "From Cloudflare rate limiting rules", 1, "198.51.100.0/24", "127.0.0.0/8",
			"\treverse_proxy", "\t@wrong header X-Password wrong\n\trespond @wrong 401\n\treverse_proxy")
		wrong := []string{"CF-Connecting-IP", "203.0.113.1", "X-Password", "wrong"}
		r.want(8, 200, http.MethodPost, "/login", "CF-Connecting-IP", "203.0.113.1")
		r.want(5, 401, http.MethodPost, "/login", wrong...)
		r.want(1, 429, http.MethodPost, "/login", wrong...)
		r.want(8, 200, get, "/login", "CF-Connecting-IP", "203.0.113.1")
		r.want(5, 401, http.MethodPost, "/login", "CF-Connecting-IP", "203.0.113.2", "X-Password", "wrong")
	})
}
