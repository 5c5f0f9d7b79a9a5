package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// What a stream holds comes from the requests that were admitted, whatever bytes
// a client sends.
func TestStreamFields(t *testing.T) {
	server := redistest.Start(t)
	address := runSite(t, fmt.Sprintf("\tsliding_window {\n\t\tstore redis {\n\t\t\taddress %s\n\t\t\ttimeout 10s\n\t\t}\n\t}", server.Addr), `
		sliding_window {
			zone stream_fields {
				key all
				limit 3 1h
				algorithm stream {
					fields user {header.X-User} what "{method} {uri}" always yes none {header.X-None}
					keep 24h
				}
			}
			zone beside {
				limit 100 1h
			}
		}
		respond ok`)
	client := caddyrun.NewClient(t)
	users := []string{"anna", "\xff\xfe", "", "denied", "denied"}
	for i, user := range users {
		req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://%s/%d?q=%%00", address, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User", user)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if (resp.StatusCode == http.StatusOK) != (i < 3) {
			t.Errorf("request %d: status %d, want 3 to pass", i, resp.StatusCode)
		}
	}
	entries, err := server.Client(t).Do(t.Context(), "XRANGE", "sw:2-stream:stream_fields:all", "-", "+").Slice()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Fatalf("%d entries, want 3: %v", len(entries), entries)
	}
	for i, e := range entries {
		got := e.([]any)[1].([]any)
		want := []any{
			"cost", "1", "total", fmt.Sprint(i + 1), "gone", "0 3600000",
			"user", users[i], "what", fmt.Sprintf("PUT /%d?q=%%00", i), "always", "yes", "none", "",
		}
		if !slices.Equal(got, want) {
			t.Errorf("entry %d = %q, want %q", i, got, want)
		}
	}
}

// TestStreamFieldsAreBounded sends values of 18 KB, which end with how long they were.
func TestStreamFieldsAreBounded(t *testing.T) {
	server := redistest.Start(t)
	address := runSite(t, fmt.Sprintf("\tsliding_window {\n\t\tstore redis {\n\t\t\taddress %s\n\t\t\ttimeout 10s\n\t\t}\n\t}", server.Addr), `
		sliding_window {
			zone bounded {
				key all
				limit 100 1h
				algorithm stream {
					fields one {header.X-Long} two {header.X-Long} three {header.X-Long} four {header.X-Long} five {header.X-Short}
				}
			}
			zone chosen {
				key all
				limit 100 1h
				algorithm stream {
					fields one {header.X-Long} two {header.X-Wide}
					max_value 40
					max_entry 80
				}
			}
		}
		respond ok`)
	client := caddyrun.NewClient(t)
	req, err := http.NewRequest(http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("long ", 3_600))
	req.Header.Set("X-Wide", strings.Repeat("ü", 1_000))
	req.Header.Set("X-Short", "short")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	long := func(n int) string { return strings.Repeat("long ", 3_600)[:n-len("…[17999]")] + "…[17999]" }
	for zone, want := range map[string][]any{
		"bounded": {"one", long(256), "two", long(256), "three", long(256), "four", long(1024 - 3*256 - 19 - 32), "five", "short"},
		"chosen":  {"one", long(40), "two", strings.Repeat("ü", 12) + "…[2000]"},
	} {
		entries, err := server.Client(t).Do(t.Context(), "XRANGE", "sw:2-stream:"+zone+":all", "-", "+").Slice()
		if err != nil || len(entries) != 1 {
			t.Fatalf("%d entries, %v, want one", len(entries), err)
		}
		if got := entries[0].([]any)[1].([]any)[6:]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", zone, got, want)
		}
	}
}

func TestStreamDocs(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```$").FindStringSubmatch(readFile(t, "docs/stream.md"))
	if block == nil {
		t.Fatal("docs/stream.md has no Caddyfile")
	}
	checkCaddyfile(t, block[1], "")
}
