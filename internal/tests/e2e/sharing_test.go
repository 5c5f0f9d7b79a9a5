package e2e_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

const (
	sharedZone = `{"handler":"sliding_window","zones":[{"name":"api","match":[{"path":["/a"]}],"limits":[{"max":5,"window":"1m"}]}]}`
	otherZone  = `{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":6,"window":"1m"}]}]}`
)

// The same zone in two handlers is one counter, so it has to be the same there.
func TestZoneInTwoHandlers(t *testing.T) {
	if err := validate(t, handlerConfig(t, sharedZone, sharedZone)); err != nil {
		t.Errorf("same definition: got %v, want no error", err)
	}
	err := validate(t, handlerConfig(t, sharedZone, otherZone))
	if err == nil {
		t.Fatal("different definitions: got no error")
	}
	for _, want := range []string{
		`zone api: defined twice, and not the same: `,
		`limits differ: [{"max":5,"window":"1m"}] and [{"max":6,"window":"1m"}], match differ: [{"path":["/a"]}] and none; make them the same to share one counter, or rename one`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("different definitions: got %v, want %s", err, want)
		}
	}
}

// How a zone is written makes no difference: what the README shows as the defaults is
// what is left out, and a number or a length is the same in any spelling.
func TestZonesWrittenInTwoWays(t *testing.T) {
	zone := func(members string) string {
		return `{"handler":"sliding_window","zones":[{"name":"api",` + members + `}]}`
	}
	const limit = `"limits":[{"max":5,"window":"1m"}]`
	for _, c := range []struct {
		one, two string
		alike    bool
	}{
		{limit, limit + `,"key":"{http.vars.client_ip}"`, true},
		{limit, limit + `,"key":"{client_ip}"`, true},
		{limit, limit + `,"key":"client_ip"`, false},
		{limit, limit + `,"fold_case":false`, true},
		{limit, limit + `,"fold_case":true`, false},
		{limit, limit + `,"key":"{http.request.remote.host}"`, false},
		{limit, `"limits":[{"max":"05","window":60000000000}]`, true},
		{limit, `"limits":[{"max":"+5","window":"60s"}]`, true},
		{limit, `"limits":[{"max":5,"window":"60001ms"}]`, false},
		{limit, `"limits":[{"max":6,"window":"1m"}]`, false},
		{limit, `"limits":[{"max":5,"window":"1m"},{"max":6,"window":"1h"}]`, false},
		{limit, limit + `,"fallback":{"max":5,"window":"1m"}`, false},
		{limit + `,"fallback":{"max":5,"window":"1m"}`, limit + `,"fallback":{"max":"05","window":"60s"}`, true},
		{limit, limit + `,"match":[{"path":["/a"]}]`, false},
		{limit, limit + `,"cost":1`, true},
		{limit, limit + `,"cost":"01"`, true},
		{limit, limit + `,"cost":2`, false},
		{limit + `,"cost":"0{http.vars.a}"`, limit + `,"cost":"{http.vars.a}"`, false},
		{limit, limit + `,"ipv4_prefix":32,"ipv6_prefix":64`, true},
		{limit, limit + `,"ipv4_prefix":24`, false},
		{limit, limit + `,"ipv6_prefix":32`, false},
		{limit, limit + `,"empty_key":"shared"`, true},
		{limit, limit + `,"empty_key":"skip"`, false},
		{limit, limit + `,"lease":{"units":5}`, false},
		{limit + `,"lease":{"units":5}`, limit + `,"lease":{"units":"05","ttl":"1000ms"}`, true},
		{limit + `,"lease":{"units":5}`, limit + `,"lease":{"units":6}`, false},
		{limit + `,"lease":{"units":5}`, limit + `,"lease":{"units":5,"ttl":"2s"}`, false},

		{limit, limit + `,"algorithm":{}`, true},
		{limit, limit + `,"algorithm":{"name":"zset"}`, true},
		{limit, limit + `,"algorithm":{"name":"log"}`, false},
		{limit + `,"algorithm":{"name":"slices"}`, limit + `,"algorithm":{"name":"slices","count":60}`, true},
		{limit + `,"algorithm":{"name":"slices"}`, limit + `,"algorithm":{"name":"slices","count":6}`, false},
		{limit + `,"algorithm":{"name":"slices"}`, limit + `,"algorithm":{"name":"slices","weighted":true}`, false},
		{limit + `,"algorithm":{"name":"slices"}`, limit + `,"algorithm":{"name":"slices","weighted":false}`, true},
		{limit + `,"algorithm":{"name":"slices","size":"1s"}`, limit + `,"algorithm":{"name":"slices","size":1000000000}`, true},
		{limit + `,"algorithm":{"name":"slices","size":"1s"}`, limit + `,"algorithm":{"name":"slices","size":"2s"}`, false},
		{limit + `,"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`, limit + `,"algorithm":{"name":"slices","layers":{"coarse":"10000ms","fine":1000000000}}`, true},
		{limit + `,"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`, limit + `,"algorithm":{"name":"slices","layers":{"coarse":"20s","fine":"1s"}}`, false},
		{limit + `,"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`, limit + `,"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"2s"}}`, false},
		{limit + `,"algorithm":{"name":"slices","adaptive":{"min":"1s","max":"2s"}}`, limit + `,"algorithm":{"name":"slices","adaptive":{"min":"1000ms","max":2000000000}}`, true},
		{limit + `,"algorithm":{"name":"slices","adaptive":{"min":"1s","max":"2s"}}`, limit + `,"algorithm":{"name":"slices","adaptive":{"min":"1s","max":"4s"}}`, false},
		{limit + `,"algorithm":{"name":"slices","adaptive":{"min":"1s","max":"4s"}}`, limit + `,"algorithm":{"name":"slices","adaptive":{"min":"2s","max":"4s"}}`, false},
		{limit + `,"algorithm":{"name":"gcra"}`, limit + `,"algorithm":{"name":"gcra","native":"off","burst":"05"}`, true},
		{limit + `,"algorithm":{"name":"gcra"}`, limit + `,"algorithm":{"name":"gcra","burst":6}`, false},
		{limit + `,"algorithm":{"name":"gcra"}`, limit + `,"algorithm":{"name":"gcra","native":"auto"}`, false},
		{limit + `,"algorithm":{"name":"gcra"},"pack":100`, limit + `,"algorithm":{"name":"gcra"},"pack":"0100"`, true},
		{limit + `,"algorithm":{"name":"gcra"},"pack":100`, limit + `,"algorithm":{"name":"gcra"},"pack":200`, false},
		{
			`"limits":[{"max":5,"window":"1m"},{"max":9,"window":"1h"}],"algorithm":{"name":"gcra"}`,
			`"limits":[{"max":5,"window":"1m"},{"max":9,"window":"1h"}],"algorithm":{"name":"gcra","burst":5}`, false,
		},
		{limit + `,"algorithm":{"name":"stream"}`, limit + `,"algorithm":{"name":"stream","keep":"0s","fields":[]}`, true},
		{limit + `,"algorithm":{"name":"stream","keep":"1h"}`, limit + `,"algorithm":{"name":"stream","keep":"60m"}`, true},
		{limit + `,"algorithm":{"name":"stream","keep":"1h"}`, limit + `,"algorithm":{"name":"stream"}`, false},
		{limit + `,"algorithm":{"name":"stream"}`, limit + `,"algorithm":{"name":"stream","fields":[{"name":"a","value":"1"}]}`, false},
		{limit + `,"algorithm":{"name":"stream","fields":[{"name":"a","value":"01"}]}`, limit + `,"algorithm":{"name":"stream","fields":[{"name":"a","value":"1"}]}`, false},
	} {
		for _, order := range [][2]string{{c.one, c.two}, {c.two, c.one}} {
			err := validate(t, handlerConfig(t, zone(order[0]), zone(order[1])))
			if c.alike && err != nil {
				t.Errorf("%s\n%s\ngot %v, want no error", order[0], order[1], err)
			}
			if !c.alike && (err == nil || !strings.Contains(err.Error(), "zone api: defined twice, and not the same")) {
				t.Errorf("%s\n%s\ngot %v, want an error", order[0], order[1], err)
			}
		}
	}
	config, err := adapt(t, `http:// {
	sliding_window api {client_ip} 5 1m
	sliding_window {
		zone api {
			limit 5 60s
			algorithm zset
			cost 1
			ipv4_prefix 32
			ipv6_prefix 64
			empty_key shared
		}
	}
}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, config); err != nil {
		t.Errorf("one line and a block: got %v, want no error", err)
	}
}

// On stores that are not the same, zones have nothing to do with each other.
func TestZoneOnTwoStores(t *testing.T) {
	other := strings.TrimSuffix(otherZone, "}") + `,"store":{"module":"redis","prefix":"%s"}}`
	one, two := strings.Replace(other, "%s", "one", 1), strings.Replace(other, "%s", "two", 1)
	if err := validate(t, handlerConfig(t, sharedZone, one, strings.Replace(two, `"max":6`, `"max":7`, 1))); err != nil {
		t.Errorf("different stores: got %v, want no error", err)
	}
	// Another user of the same server and prefix has the same counters.
	sameCounters := strings.Replace(strings.Replace(one, `"max":6`, `"max":7`, 1), `"prefix"`, `"username":"u","password":"p","prefix"`, 1)
	if err := validate(t, handlerConfig(t, one, sameCounters)); err == nil || !strings.Contains(err.Error(), "zone api: defined twice, and not the same") {
		t.Errorf("same counters: got %v, want an error", err)
	}
}

// A handler without a store takes the app's.
func TestZoneOnGlobalStore(t *testing.T) {
	config := func(own string) []byte {
		c, err := adapt(t, `{
	sliding_window {
		store redis redis://localhost:6379/1
	}
}

http:// {
	sliding_window /a api {client_ip} 5 1m
	sliding_window /b api {client_ip} 6 1m {
		store `+own+`
	}
}
`)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := validate(t, config("memory")); err != nil {
		t.Errorf("a store of its own: got %v, want no error", err)
	}
	if err := validate(t, config("redis redis://localhost:6379/1")); err == nil || !strings.Contains(err.Error(), "zone api: defined twice, and not the same") {
		t.Errorf("the global store again: got %v, want an error", err)
	}
}

// A configuration loads whether Redis is there or not, and without asking it.
func TestProvisionAsksNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for _, store := range []string{
		"redis redis://" + listener.Addr().String(),
		"redis redis://" + caddyrun.FreeAddress(t),
		"redis {\n\t\t\taddress no-such-host.invalid:6379\n\t\t}",
		"redis {\n\t\t\taddress " + listener.Addr().String() + "\n\t\t\tcluster\n\t\t}",
		"redis {\n\t\t\taddress " + listener.Addr().String() + "\n\t\t\tmaster main\n\t\t}",
	} {
		config, err := adapt(t, "http:// {\n\tsliding_window api {client_ip} 5 1m {\n\t\tstore "+store+"\n\t}\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, config); err != nil {
			t.Errorf("store %s: got %v, want no error", store, err)
		}
	}
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := listener.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Accept: got %v, want no address", err)
	}
}

// What goes wrong with a store only once its placeholders and files are read.
func TestRefusedWhenRead(t *testing.T) {
	t.Setenv("SLIDING_WINDOW_TEST", "no port")
	for _, r := range []struct{ store, want string }{
		{`"password":"{env.SLIDING_WINDOW_UNSET}"`, `store redis: password: {env.SLIDING_WINDOW_UNSET} has no value`},
		{`"username":"{no.such}"`, `store redis: username: unrecognized placeholder {no.such}`},
		{`"address":["localhost:6379","{no.such}"]`, `store redis: address 2: unrecognized placeholder {no.such}`},
		{`"address":["{env.SLIDING_WINDOW_TEST}"]`, `store redis: address "{env.SLIDING_WINDOW_TEST}": must be host:port`},
		{`"url":"redis://{no.such}@localhost"`, `store redis: url: the braces are not a placeholder`},
		{`"url":"{env.SLIDING_WINDOW_TEST}"`, `store redis: url: `},
		{`"prefix":"{tag}"`, `store redis: prefix: unrecognized placeholder {tag}`},
		{`"prefix":"\\{tag\\}"`, `store redis: prefix "\\{tag\\}": must not come out with braces`},
		{`"tls":{"ca":"no-such-file.pem"}`, `store redis: tls: ca: open no-such-file.pem`},
		{`"tls":{"ca":"go.mod"}`, `store redis: tls: ca go.mod: holds no certificate`},
		{`"tls":{"cert":"no-such-cert.pem","key":"no-such-key.pem"}`, `store redis: tls: cert: open no-such-cert.pem`},
	} {
		handler := strings.TrimSuffix(sharedZone, "}") + `,"store":{"module":"redis",` + r.store + `}}`
		if err := validate(t, handlerConfig(t, handler)); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want %s", r.store, err, r.want)
		}
	}
}
