package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// tokenSite is a Caddy with a zone of tokens in front of a back end.
type tokenSite struct {
	testing.TB
	client  *http.Client
	address string
	prefix  string // of keys: the memory store outlives a site
}

// withH2C has the global options of a Caddyfile with a store, for HTTP/1.1 and HTTP/2 without TLS.
const withH2C = `{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
	servers {
		protocols h1 h2c
	}
	sliding_window {
		store %s
	}
}
`

// serveTokens serves handlers behind a zone, whose cost is in X-Cost, and 1 without it. Inside and around
// are directives on either side of the zone.
func serveTokens(t testing.TB, store, zone, around, inside, handler string) *tokenSite {
	t.Helper()
	s := &tokenSite{t, caddyrun.NewClient(t), caddyrun.FreeAddress(t), rand.Text()}
	err := loadCaddy(fmt.Sprintf(withH2C+`http://%s {
	route {
		%s
		sliding_window {
			zone tokens {
				key {header.X-Key}
				cost {header.X-Cost}
				%s
			}
		}
		respond /look 200
		%s
		%s
	}
}
`, store, s.address, around, zone, inside, handler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request returns a request of a key that reserves a cost, "" for none of its own.
func (s *tokenSite) request(ctx context.Context, path, key, cost, body string, header ...string) *http.Request {
	s.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("X-Key", s.prefix+key)
	if cost != "" {
		req.Header.Set("X-Cost", cost)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// ask reads an answer as a whole.
func (s *tokenSite) ask(path, key, cost, body string, header ...string) (status int, text string, h http.Header) {
	s.Helper()
	resp, err := s.client.Do(s.request(context.Background(), path, key, cost, body, header...))
	if err != nil {
		s.Error(err)
		return 0, "", nil
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body) // of a back end that is cut off
	return resp.StatusCode, string(b), resp.Header
}

var tokensLeft = regexp.MustCompile(`^"tokens";r=(\d+)`)

// left returns how many units of the limit are left to a key.
func (s *tokenSite) left(key string) int64 {
	s.Helper()
	_, _, header := s.ask("/look", key, "0", "")
	m := tokensLeft.FindStringSubmatch(header.Get("RateLimit"))
	if m == nil {
		s.Fatalf("RateLimit %q", header.Get("RateLimit"))
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n
}

// wantLeft waits until want units are left.
func (s *tokenSite) wantLeft(key string, want int64) {
	s.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n := s.left(key)
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("%d units are left, want %d", n, want)
			return
		}
	}
}

// newModel is a back end with the APIs of internal/testkit/fakellm. What is not one of them, handle answers.
func newModel(t testing.TB, handle http.HandlerFunc) string {
	model := fakellm.Handler(0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			model.ServeHTTP(w, r)
			return
		}
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Whole answers and streams of each API, in each coding, through a reverse_proxy with and without
// buffering, and with encode on either side.
func TestSettleBehindReverseProxy(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		model := newModel(t, nil)
		for _, site := range []struct{ name, around, inside, proxy string }{
			{"plain", "", "", "reverse_proxy " + model},
			{"unbuffered", "", "", "reverse_proxy " + model + " {\n\t\t\tflush_interval -1\n\t\t}"},
			{"buffered", "", "", "reverse_proxy " + model + " {\n\t\t\tresponse_buffers 1MiB\n\t\t\trequest_buffers 1MiB\n\t\t}"},
			{"encode outside", "encode {\n\t\t\tgzip\n\t\t\tzstd\n\t\t\tminimum_length 1\n\t\t}", "", "reverse_proxy " + model},
			{"encode inside", "", "encode {\n\t\t\tgzip\n\t\t\tzstd\n\t\t\tminimum_length 1\n\t\t}", "reverse_proxy " + model},
		} {
			for api, paths := range map[string][]string{"openai": {"/v1/chat/completions", "/v1/responses"}, "anthropic": {"/v1/messages"}} {
				t.Run(site.name+" "+api, func(t *testing.T) {
					s := serveTokens(t, store, "limit 100000 1h\n\t\t\t\tsettle {\n\t\t\t\t\tusage "+api+"\n\t\t\t\t\tweight input 1 cached 0.5 output 3\n\t\t\t\t}", site.around, site.inside, site.proxy)
					for _, path := range paths {
						for _, coding := range []string{"", "gzip", "zstd"} {
							for _, body := range []string{`{}`, `{"stream":true,"stream_options":{"include_usage":true}}`} {
								key := rand.Text()
								accept := coding
								if coding == "" {
									accept = "identity"
								}
								status, _, header := s.ask(path+"?input=400&cached=40&output=30&coding="+coding, key, "1000", body, "Accept-Encoding", accept)
								if status != 200 || header.Get("RateLimit") == "" || header.Get("Content-Encoding") != coding {
									t.Errorf("%s %s %s: %d %v", path, coding, body, status, header)
								}
								s.wantLeft(key, 100000-(360+20+90))
							}
						}
					}
				})
			}
		}
	})
}

// Each event reaches the client before the back end goes on, over HTTP/1.1 and HTTP/2: the back end waits
// for the client. Until the last one, the reservation counts.
func TestSettleStreams(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	got := make(chan bool)
	model := newModel(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 20 {
			_, _ = fmt.Fprintf(w, "data: {\"usage\":{\"prompt_tokens\":%d}}\n\n", n)
			_ = http.NewResponseController(w).Flush()
			<-got
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	s := serveTokens(t, "memory", "limit 1000 1h\n\t\t\t\tsettle usage openai", "", "encode {\n\t\t\tgzip\n\t\t\tmatch header Content-Type none\n\t\t}", "reverse_proxy "+model)
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &h2c}
	t.Cleanup(transport.CloseIdleConnections)
	for key, client := range map[string]*http.Client{"HTTP/1.1": s.client, "HTTP/2.0": {Transport: transport}} {
		resp, err := client.Do(s.request(t.Context(), "/events", key, "100", ""))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Proto != key {
			t.Errorf("the protocol is %s, want %s", resp.Proto, key)
		}
		lines := bufio.NewReader(resp.Body)
		for n := range 20 {
			line, err := lines.ReadString('\n')
			if want := fmt.Sprintf("data: {\"usage\":{\"prompt_tokens\":%d}}\n", n); line != want || err != nil {
				t.Fatalf("%q, %v, want %q", line, err, want)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if n := s.left(key); n != 900 {
				t.Errorf("%d units are left while the stream goes on, want 900", n)
			}
			got <- true
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		s.wantLeft(key, 981)
	}
}

// A WebSocket through a reverse_proxy works both ways; what passes is not read, and the reservation stays.
func TestSettleWebSocket(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	model := newModel(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(rw, line)
		_ = rw.Flush()
	})
	s := serveTokens(t, "memory", "limit 1000 1h\n\t\t\t\tsettle usage openai", "", "", "reverse_proxy "+model)
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+s.address+"\r\nX-Key: "+s.prefix+"key\r\nX-Cost: 100\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n{\"usage\":{\"prompt_tokens\":1}}\n")
	text, _ := io.ReadAll(conn)
	_ = conn.Close()
	if !bytes.HasPrefix(text, []byte("HTTP/1.1 101 ")) || !bytes.HasSuffix(text, []byte("\r\n\r\n{\"usage\":{\"prompt_tokens\":1}}\n")) {
		t.Errorf("%q", text)
	}
	s.wantLeft("key", 900)
}

// An answer of 100 MB passes, and its usage at the end is found.
func TestSettleLargeAnswer(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	piece := bytes.Repeat([]byte("x"), 1<<20)
	model := newModel(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":"`)
		for range 100 {
			_, _ = w.Write(piece)
		}
		_, _ = io.WriteString(w, `","usage":{"prompt_tokens":10,"completion_tokens":2}}`)
	})
	s := serveTokens(t, "memory", "limit 1000 1h\n\t\t\t\tsettle usage openai", "", "", "reverse_proxy "+model)
	s.client.Timeout = 2 * time.Minute // the race detector is slow
	if _, text, _ := s.ask("/large", "key", "100", "{}"); len(text) < 100<<20 {
		t.Errorf("%d bytes came", len(text))
	}
	s.wantLeft("key", 988)
}

// What other systems did wrong, one row each.
func TestFaultsOfOthers(t *testing.T) {
	const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	const stream = `{"stream":true,"stream_options":{"include_usage":true}}`
	const reserve = "limit 1000 1h\n\t\t\t\tsettle {\n\t\t\t\t\tusage openai\n\t\t\t\t\treserve_json max_tokens max_completion_tokens max_output_tokens\n\t\t\t\t}"
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		asked, cancelled, answer := make(chan bool, 100), make(chan bool, 100), make(chan string)
		model := newModel(t, func(w http.ResponseWriter, r *http.Request) {
			asked <- true
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/stream" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			select {
			case text := <-answer:
				_, _ = io.WriteString(w, text)
			case <-r.Context().Done():
				cancelled <- true
			}
		})
		serve := func(t *testing.T, zone string) *tokenSite {
			return serveTokens(t, store, strings.ReplaceAll(zone, "openai:", "\n\t\t\t\tsettle usage openai"), "", "", "reverse_proxy "+model)
		}
		usage := func(n int) string { return fmt.Sprintf(`{"usage":{"prompt_tokens":%d,"completion_tokens":0}}`, n) }
		hangUp := func(t *testing.T, s *tokenSite, key string) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := s.client.Do(s.request(ctx, "/stream", key, "100", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			<-asked
			_, _ = resp.Body.Read(make([]byte, 1))
			cancel()
			_ = resp.Body.Close()
			<-cancelled
		}

		t.Run("checked before and charged after, so that parallel requests all pass", func(t *testing.T) {
			s := serve(t, "limit 100 1h openai:")
			var wg sync.WaitGroup
			statuses := make(chan int, 5)
			for range 5 {
				wg.Go(func() {
					status, _, _ := s.ask("/wait", "key", "50", "{}")
					statuses <- status
				})
			}
			for range 3 {
				if status := <-statuses; status != 429 {
					t.Errorf("status %d, want 429 for 3 of 5", status)
				}
			}
			for range 2 {
				<-asked
				answer <- usage(50)
			}
			wg.Wait()
			s.wantLeft("key", 0)
		})
		t.Run("an estimate above a small limit denies the first request", func(t *testing.T) {
			s := serve(t, reserve)
			if status, _, _ := s.ask(chat+"?input=5&output=5", "key", "", `{"max_tokens":4000}`); status != 200 {
				t.Errorf("status %d", status)
			}
			if status, _, _ := s.ask(chat+"?input=5&output=5", "key of 5000", "5000", `{}`); status != 200 {
				t.Errorf("status %d", status)
			}
			s.wantLeft("key", 990)
		})
		t.Run("max_tokens 1 beside a large max_completion_tokens", func(t *testing.T) {
			s := serve(t, reserve)
			if _, _, h := s.ask(chat+"?output=1", "key", "", `{"max_tokens":1,"max_completion_tokens":900}`); !strings.HasPrefix(h.Get("RateLimit"), `"tokens";r=100;`) {
				t.Errorf("RateLimit %s", h.Get("RateLimit"))
			}
		})
		t.Run("max_output_tokens of the Responses API is not read", func(t *testing.T) {
			s := serve(t, reserve)
			if _, _, h := s.ask(responses+"?output=1", "key", "", `{"max_output_tokens":900}`); !strings.HasPrefix(h.Get("RateLimit"), `"tokens";r=100;`) {
				t.Errorf("RateLimit %s", h.Get("RateLimit"))
			}
		})
		t.Run("a client that hangs up before the usage pays nothing", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			hangUp(t, s, "key")
			time.Sleep(50 * time.Millisecond)
			s.wantLeft("key", 900)
		})
		t.Run("a missing usage gives the whole reservation back", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			s.ask(chat+"?usage=no", "key", "100", `{}`)
			s.ask(chat, "key", "100", `{"stream":true}`) // without include_usage
			time.Sleep(50 * time.Millisecond)
			s.wantLeft("key", 800)
		})
		t.Run("an estimate of the output only makes the prompt free", func(t *testing.T) {
			s := serve(t, strings.Replace(reserve, "usage openai", "usage openai\n\t\t\t\t\treserve_body 4", 1))
			body := `{"max_tokens":100,"messages":"` + strings.Repeat("x", 800-32) + `"}`
			if _, _, h := s.ask(chat+"?usage=no", "key", "", body); !strings.HasPrefix(h.Get("RateLimit"), `"tokens";r=700;`) {
				t.Errorf("RateLimit %s, %d bytes", h.Get("RateLimit"), len(body))
			}
			s.wantLeft("key", 700)
		})
		t.Run("answers are read on after a hang-up, without a bound", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			for range 5 {
				hangUp(t, s, "key") // it waits until the back end has heard of it
			}
			s.wantLeft("key", 500)
		})
		t.Run("what is given back goes to the next window, and takes the units of others", func(t *testing.T) {
			s := serve(t, "limit 1000 2s openai:")
			done := make(chan bool)
			go func() {
				s.ask("/wait", "key", "1000", "{}")
				done <- true
			}()
			<-asked
			s.wantLeft("key", 1000) // two seconds later
			go func() {
				s.ask("/wait", "key", "600", "{}")
				done <- true
			}()
			<-asked
			s.wantLeft("key", 400)
			answer <- usage(0) // to the first that waits
			<-done
			time.Sleep(50 * time.Millisecond)
			s.wantLeft("key", 400)
			answer <- usage(100)
			<-done
			s.wantLeft("key", 900)
		})
		t.Run("a client that hangs up leaves its reservation behind for ever", func(t *testing.T) {
			s := serve(t, "limit 1000 1s openai:")
			hangUp(t, s, "key")
			s.wantLeft("key", 1000)
		})
		t.Run("the counter is just above its cap for hours after reservations of the worst case", func(t *testing.T) {
			s := serve(t, reserve)
			for range 10 {
				if status, _, _ := s.ask(chat+"?input=3&output=2", "key", "", `{"max_tokens":940}`); status != 200 {
					t.Fatalf("status %d", status)
				}
				caddyrun.Eventually(t, 20*time.Second, "the rest is back", func() bool { return s.left("key") >= 950 })
			}
			s.wantLeft("key", 950)
		})
		t.Run("a denial by tokens tells no Retry-After", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			s.ask(chat+"?input=5000&output=0", "key", "", `{}`)
			s.wantLeft("key", 0)
			status, _, h := s.ask(chat, "key", "", `{}`)
			if n, _ := strconv.Atoi(h.Get("Retry-After")); status != 429 || n < 3590 || n > 3600 {
				t.Errorf("status %d, Retry-After %d, want 429 and 3600", status, n)
			}
		})
		t.Run("a hang-up gives everything back", func(t *testing.T) {
			s := serve(t, "limit 100 1h openai:")
			hangUp(t, s, "key")
			if status, _, _ := s.ask("/wait", "key", "100", "{}"); status != 429 {
				t.Errorf("status %d after a hang-up, want 429", status)
			}
		})
		t.Run("an estimate that fails reserves the whole limit", func(t *testing.T) {
			s := serve(t, reserve)
			for _, body := range []string{`{}`, `no JSON`, `{"max_tokens":"many"}`, `{"max_tokens":-1}`, ``} {
				if _, _, h := s.ask("/look", rand.Text(), "100", body); !strings.HasPrefix(h.Get("RateLimit"), `"tokens";r=900;`) {
					t.Errorf("RateLimit %s with the body %s", h.Get("RateLimit"), body)
				}
			}
		})
		t.Run("streams are not counted", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			s.ask(chat+"?input=30&output=20", "chat", "100", stream)
			s.ask(responses+"?input=30&output=20", "responses", "100", stream)
			s.wantLeft("chat", 950)
			s.wantLeft("responses", 950)
			s = serve(t, "limit 1000 1h\n\t\t\t\tsettle usage anthropic")
			s.ask(messages+"?input=30&output=20", "messages", "100", stream)
			s.wantLeft("messages", 950)
		})
		t.Run("settled when the stream begins, or while it goes on", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			resp, err := s.client.Do(s.request(t.Context(), "/stream", "key", "100", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			<-asked
			_, _ = resp.Body.Read(make([]byte, 100))
			time.Sleep(50 * time.Millisecond)
			if n := s.left("key"); n != 900 {
				t.Errorf("%d units are left while the stream goes on, want 900", n)
			}
			answer <- "data: " + usage(7) + "\n\ndata: [DONE]\n\n"
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			s.wantLeft("key", 993)
		})
		t.Run("an answer without tokens costs 1 on an endpoint without tokens", func(t *testing.T) {
			s := serve(t, "limit 1000 1h\n\t\t\t\tsettle {\n\t\t\t\t\tusage openai\n\t\t\t\t\ton_missing refund\n\t\t\t\t}")
			s.ask(chat+"?usage=no", "key", "100", "{}")
			s.wantLeft("key", 1000)
		})
		t.Run("an answer with an error costs the estimate", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			s.ask(chat+"?status=500", "key", "100", "{}")
			s.ask(chat+"?status=400", "key", "100", "{}")
			s.wantLeft("key", 1000)
			s.ask(chat+"?abort=1", "cut", "100", "{}")
			s.ask(chat+"?abort=3", "cut", "100", stream)
			time.Sleep(50 * time.Millisecond)
			s.wantLeft("cut", 800)
		})
		t.Run("what one huge answer costs above the limit is forgiven", func(t *testing.T) {
			s := serve(t, "limit 1000 2s openai:")
			s.ask(chat+"?input=400&output=0", "key", "", "{}")
			s.ask(chat+"?input=5000&output=0", "key", "", "{}")
			s.wantLeft("key", 0)
			s.wantLeft("key", 1000) // when both have left the window
		})
		t.Run("the usage is unknown", func(t *testing.T) {
			s := serve(t, "limit 1000 1h openai:")
			s.ask(chat+"?usage=no", "key", "100", stream)
			time.Sleep(50 * time.Millisecond)
			s.wantLeft("key", 900)
		})
	})
}

// Redis is killed between decision and settlement: what an answer cost above its reservation is owed, and
// booked when Redis is back. So is the cost of a request that was decided on while Redis was away.
func TestSettleTokensInOutages(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	for _, decidedAway := range []bool{false, true} {
		server := redistest.Start(t)
		asked, answer := make(chan bool), make(chan int)
		model := newModel(t, func(w http.ResponseWriter, _ *http.Request) {
			asked <- true
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d}}`, <-answer)
		})
		s := serveTokens(t, "redis redis://"+server.Addr, "limit 10000 1h\n\t\t\t\tsettle usage openai", "", "", "reverse_proxy "+model)
		redis := server.Client(t)
		counted := func(key string) bool { return zsetMembers(redis, "tokens", s.prefix+key) > 0 }
		caddyrun.Eventually(t, 20*time.Second, "Redis decides", func() bool {
			s.ask("/look", "warm", "1", "")
			return counted("warm")
		})
		if decidedAway {
			server.Kill()
			caddyrun.Eventually(t, 20*time.Second, "Caddy notices", func() bool {
				status, _, _ := s.ask("/look", "warm", "1", "")
				return status == 200
			})
		}
		done := make(chan bool)
		for range 3 {
			go func() {
				s.ask("/wait", "key", "100", "{}")
				done <- true
			}()
			<-asked
		}
		if !decidedAway {
			server.Kill()
		}
		for range 3 {
			answer <- 500
			<-done
		}
		want := int64(10000 - 3*500)
		s.wantLeft("key", want) // on local counts
		server.Restart(t)
		caddyrun.Eventually(t, 20*time.Second, "the units are booked", func() bool {
			s.left("key")
			return counted("key")
		})
		if !decidedAway {
			want += 3 * 100 // Redis has lost what it had counted
		}
		caddyrun.Eventually(t, 20*time.Second, "all are booked", func() bool { return s.left("key") == want })
	}
}

// zsetMembers returns how many members a zset counter of a zone has.
func zsetMembers(redis *goredis.Client, zone, key string) int64 {
	return redis.ZCard(context.Background(), "sw:2-zset:"+zone+":"+key).Val()
}
