package e2e_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// collector receives spans by OTLP over gRPC, as Caddy's tracing handler sends them.
type collector struct {
	address string
	mu      sync.Mutex
	spans   map[string]map[string]string // by name: the attributes of rate_limit
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: make(map[string]map[string]string)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(c.export), ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c.address = listener.Addr().String()
	return c
}

// export answers TraceService.Export.
func (c *collector) export(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if len(body) > 5 { // a frame: is it compressed, and how long is it
		c.note(body[5:])
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write(make([]byte, 5))
	w.Header().Set("Grpc-Status", "0")
}

// note notes the spans of an ExportTraceServiceRequest.
func (c *collector) note(request []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range protobufFields(request)[1] {
		for _, scope := range protobufFields([]byte(resource))[2] {
			for _, span := range protobufFields([]byte(scope))[2] {
				fields, attributes := protobufFields([]byte(span)), make(map[string]string)
				for _, pair := range fields[9] {
					kv := protobufFields([]byte(pair))
					if name := kv[1][0]; strings.HasPrefix(name, "rate_limit.") {
						for kind, value := range protobufFields([]byte(kv[2][0])) {
							attributes[name] = fmt.Sprint([...]string{1: "", 2: "bool ", 3: "int ", 5: "array "}[kind], value[0])
						}
					}
				}
				c.spans[fields[5][0]] = attributes
			}
		}
	}
}

// protobufFields returns the fields of a message of Protocol Buffers by number: numbers as text, the others as they are.
func protobufFields(message []byte) map[uint64][]string {
	all := make(map[uint64][]string)
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		message = message[n:]
		var value string
		switch tag & 7 {
		case 0:
			number, n := binary.Uvarint(message)
			value, message = fmt.Sprint(number), message[n:]
		case 1:
			value, message = string(message[:8]), message[8:]
		case 2:
			length, n := binary.Uvarint(message)
			value, message = string(message[n:n+int(length)]), message[n+int(length):]
		case 5:
			value, message = string(message[:4]), message[4:]
		}
		all[tag>>3] = append(all[tag>>3], value)
	}
	return all
}

// TestTracedRequests sends requests through Caddy's tracing handler and limits, and looks at the spans that a collector gets.
func TestTracedRequests(t *testing.T) {
	spans, server := newCollector(t), redistest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+spans.address)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	directives := `
	tracing {
		span "{path}"
	}
	handle /none {
		respond ok
	}
	handle /memory {
		sliding_window {
			zone wide {
				limit 1000 1h
			}
			zone tight {
				key {header.X-Key}
				limit 1 1h
			}
			log_key
		}
		respond ok
	}
	handle /two {
		sliding_window first all 1000 1h
		sliding_window {
			zone second {
				key all
				limit 10 1h
			}
			log_key
		}
		respond ok
	}
	handle /marked {
		sliding_window {
			zone whole {
				key all
				limit 10 1h
			}
			zone always {
				key all
				limit 0 1h
				enforce mark
			}
		}
		respond ok
	}
	handle /never {
		sliding_window never all 0 1h
		respond ok
	}
	handle /redis {
		sliding_window {
			zone remote {
				key {header.X-Key}
				limit 1 1h
				empty_key deny 401
			}
			store redis redis://` + server.Addr + `
			log_key
		}
		respond ok
	}
	handle /lease {
		sliding_window {
			zone leased {
				key all
				limit 100000 1h
				lease 1000
			}
			store redis redis://` + server.Addr + `
		}
		respond ok
	}`
	for _, word := range []string{"local", "allow", "deny"} {
		directives += `
	handle /` + word + ` {
		sliding_window {
			zone of_` + word + ` {
				key {header.X-Key}
				limit 1 1h
			}
			store redis redis://127.0.0.1:1
			on_error ` + word + `
			log_key
		}
		respond ok
	}`
	}
	c := newControlled(t, "", directives)
	span := func(path, key string) (int, string) {
		t.Helper()
		status, _, _ := c.request(path, key)
		var got map[string]string
		caddyrun.Eventually(t, 20*time.Second, "a span of "+path, func() bool {
			spans.mu.Lock()
			defer spans.mu.Unlock()
			var ok bool
			got, ok = spans.spans["/"+path]
			delete(spans.spans, "/"+path)
			return ok
		})
		return status, strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(fmt.Sprint(got), "rate_limit.", ""), "map["), "]")
	}
	want := func(path, key string, status int, want string) {
		t.Helper()
		if code, got := span(path, key); code != status || got != want {
			t.Errorf("/%s: status %d and attributes\n\t%s, want %d and\n\t%s", path, code, got, status, want)
		}
	}
	denied := func(key, source, zone string) string {
		return "allowed:bool 0 " + key + "retry_after:int 3600 source:" + source + " zone:" + zone
	}
	want("none", "anna", 200, "")
	want("memory", "anna", 200, "allowed:bool 1 key:anna source:store zone:tight")
	want("memory", "anna", 429, denied("key:anna ", "store", "tight"))
	want("two", "anna", 200, "allowed:bool 1 key:all source:store zone:second")
	want("marked", "anna", 200, "allowed:bool 1 marked:array \n\b\n\x06always source:store zone:whole")
	want("never", "anna", 429, "allowed:bool 0 source:store zone:never")
	want("redis", "anna", 200, "allowed:bool 1 key:anna source:store zone:remote")
	want("redis", "anna", 429, denied("key:anna ", "store", "remote"))
	want("redis", "anna", 429, denied("key:anna ", "remembered", "remote"))
	want("redis", "", 401, "allowed:bool 0 source:empty_key zone:remote")
	want("local", "anna", 200, "allowed:bool 1 key:anna source:local zone:of_local")
	want("local", "anna", 429, denied("key:anna ", "local", "of_local"))
	want("allow", "anna", 200, "allowed:bool 1 key:anna source:away zone:of_allow")
	want("deny", "anna", 503, "allowed:bool 0 key:anna retry_after:int 1 source:away zone:of_deny")
	caddyrun.Eventually(t, 20*time.Second, "units of a lease", func() bool {
		for range 100 { // leases follow the rate
			c.request("lease", "")
		}
		_, got := span("lease", "anna")
		return got == "allowed:bool 1 source:lease zone:leased"
	})

	set := func(key, effect string, value any) {
		t.Helper()
		c.post("overrides/set", map[string]any{"zone": "tight", "key": key, effect: value, "ttl": "1h", "reason": "test"}, http.StatusOK, new(any))
		// The store of this process outlives the test.
		t.Cleanup(func() {
			c.post("overrides/delete", map[string]any{"zone": "tight", "key": key}, http.StatusOK, new(any))
		})
	}
	set("bob", "deny", true)
	set("carl", "exempt", true)
	want("memory", "bob", 429, denied("key:bob ", "override", "tight"))
	want("memory", "carl", 200, "allowed:bool 1 key:127.0.0.1 source:store zone:wide")
}
