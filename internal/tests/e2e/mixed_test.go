package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestWindowsOfOneCounter uses a limit of ten in an hour up. Requests for another path, which
// have the same counter, another limit and a window of 20 ms, then pass. None of them
// makes room in the hour.
func TestWindowsOfOneCounter(t *testing.T) {
	stores := map[string]string{"memory": "memory", "redis": "redis {\n\t\t\taddress " + redistest.Start(t).Addr + "\n\t\t\ttimeout 5s\n\t\t}"}
	algorithms := []string{
		"zset", "log", "stream", "gcra", "slices", "slices {\n\t\t\t\tcount 3\n\t\t\t\tweighted\n\t\t\t}",
		"slices {\n\t\t\t\tadaptive 10ms 1s\n\t\t\t}", "slices {\n\t\t\t\tcount 3\n\t\t\t}\n\t\t\tpack 1000", "gcra\n\t\t\tpack 1000",
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			address := caddyrun.FreeAddress(t)
			zones := ""
			for i, a := range algorithms {
				zones += fmt.Sprintf("\t\tzone %d {\n\t\t\tmatch header X-Zone %[1]d\n\t\t\tkey {header.X-Key}\n\t\t\tlimit {max} {window}\n\t\t\tfallback 1 1h\n\t\t\talgorithm %[2]s\n\t\t}\n", i, a)
			}
			if err := loadCaddy(fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://%s {
	map {path} {max} {window} {
		/short 3 20ms
		default 10 1h
	}
	sliding_window {
%s		store %s
	}
	respond 200
}
`, address, zones, store)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = caddy.Stop() })
			client := caddyrun.NewClient(t)
			for i, a := range algorithms {
				ask := func(path string) bool {
					t.Helper()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-Zone", fmt.Sprint(i))
					req.Header.Set("X-Key", "key")
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
						t.Fatalf("%s: status %d, want 200 or 429", a, resp.StatusCode)
					}
					return resp.StatusCode == http.StatusOK
				}
				for n := range 10 {
					if !ask("/long") {
						t.Fatalf("%s: request %d is denied, want ten to pass", a, n)
					}
				}
				for short := 0; short < 20; {
					if ask("/short") {
						short++
					}
				}
				for range 5 {
					if ask("/long") {
						t.Errorf("%s: one more passes within the hour", a)
					}
				}
			}
		})
	}
}
