package upgrading

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// limit is that of each zone, in a window that no test outlives. What a fixture holds counts until 2036.
const limit, window = 30, "87600h"

// zones are the paths at which they count, with what sets them apart.
var zones = map[string]string{
	"zset":   "algorithm zset",
	"log":    "algorithm log",
	"slices": "algorithm slices",
	"stream": "algorithm stream",
	"gcra":   "algorithm gcra",
	"leased": "lease 5 1s",
}

// isExact reports whether a zone admits all of its limit: units of a lease may be on their way back when the last request comes.
func isExact(zone string) bool { return zone != "leased" }

// caddyfile is one that former versions know.
func caddyfile(redis, site, dir string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "{\n\tadmin {admin}\n\tpersist_config off\n\tauto_https off\n\tstorage file_system %s\n", dir)
	_, _ = fmt.Fprintf(&b, "\tsliding_window {\n\t\tstore redis {\n\t\t\taddress %s\n\t\t\ttimeout 5s\n\t\t}\n\t}\n}\nhttp://%s {\n\trespond /healthz ok\n\tsliding_window {\n", redis, site)
	for zone, line := range zones {
		writeZone(&b, zone, line)
	}
	writeZone(&b, "ordered", "algorithm zset") // clients of the fleet do not ask there
	return b.String() + "\t}\n\trespond ok\n}\n"
}

func writeZone(b *strings.Builder, zone, line string) {
	_, _ = fmt.Fprintf(b, "\t\tzone %s {\n\t\t\tmatch {\n\t\t\t\tpath /%[1]s\n\t\t\t}\n\t\t\tkey {header.X-Key}\n\t\t\tlimit %d %s\n\t\t\t%s\n\t\t}\n", zone, limit, window, line)
}

// fleet is three Caddys on one Redis, and a client of each that asks without a pause.
type fleet struct {
	*testing.T
	redis *redistest.Server
	sites []string
	homes []string // of the storage, which outlives a Caddy: it has a copy of the overrides
	runs  []*caddyrun.Process

	mu   sync.Mutex // guards what follows
	keys []string   // that clients ask for
	seen map[string]*answers
	lost int // answers that were broken off: the requests may have been counted
}

// answers are those on one key in one zone.
type answers struct {
	allowed int
	denied  map[string]bool // the sites that denied it last
}

// newFleet starts three Caddys of one binary.
func newFleet(t *testing.T, server *redistest.Server, binary string) *fleet {
	f := &fleet{T: t, redis: server, seen: map[string]*answers{}, runs: make([]*caddyrun.Process, 3)}
	for i := range f.runs {
		f.sites, f.homes = append(f.sites, caddyrun.FreeAddress(t)), append(f.homes, t.TempDir())
		f.replace(i, binary)
	}
	var clients sync.WaitGroup
	end := make(chan struct{})
	for _, site := range f.sites {
		client := caddyrun.NewClient(t)
		clients.Go(func() { f.ask(client, site, end) })
	}
	t.Cleanup(func() {
		close(end)
		clients.Wait()
	})
	return f
}

// replace ends a Caddy, if it runs, and starts another binary in its place.
func (f *fleet) replace(i int, binary string) {
	f.Helper()
	if f.runs[i] != nil {
		f.runs[i].End(f.T)
	}
	f.runs[i] = caddyrun.StartBinary(f.T, binary, caddyfile(f.redis.Addr, f.sites[i], f.homes[i]), f.sites[i])
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.seen {
		delete(a.denied, f.sites[i]) // an answer of the former Caddy may have been noted since it ended
	}
}

// ask is a client of one site. It asks on each key in each zone that the site has not denied yet, and on a few that it has.
func (f *fleet) ask(client *http.Client, site string, end <-chan struct{}) {
	for n := 0; ; n++ {
		f.mu.Lock()
		keys := f.keys
		f.mu.Unlock()
		for zone := range zones {
			for _, key := range keys {
				select {
				case <-end:
					return
				default:
				}
				name := zone + " " + key
				f.mu.Lock()
				a := f.seen[name]
				if a == nil {
					a = &answers{denied: map[string]bool{}}
					f.seen[name] = a
				}
				skip := a.denied[site] && n%16 > 0
				f.mu.Unlock()
				if !skip {
					f.note(a, site, name, client, zone, key)
				}
			}
		}
		select {
		case <-end:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// note sends a request, and notes its answer.
func (f *fleet) note(a *answers, site, name string, client *http.Client, zone, key string) {
	req, err := http.NewRequest(http.MethodGet, "http://"+site+"/"+zone, nil)
	if err != nil {
		f.Error(err)
		return
	}
	req.Header.Set("X-Key", key)
	resp, err := client.Do(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && strings.Contains(err.Error(), "connection refused"):
	case err != nil:
		f.lost++
	case resp.StatusCode == http.StatusOK:
		a.allowed++
	case resp.StatusCode == http.StatusTooManyRequests:
		a.denied[site] = true
	default:
		f.Errorf("%s at %s: status %d", name, site, resp.StatusCode)
	}
}

// use adds a key to those that clients ask for.
func (f *fleet) use(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys[:len(f.keys):len(f.keys)], key)
}

// exhaust waits until every Caddy that runs denies a key in each zone.
func (f *fleet) exhaust(keys ...string) {
	f.Helper()
	for _, key := range keys {
		for zone := range zones {
			caddyrun.Eventually(f, 20*time.Second, fmt.Sprintf("all Caddys deny %s in zone %s", key, zone), func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				a := f.seen[zone+" "+key]
				return a != nil && len(a.denied) == len(f.sites)
			})
		}
	}
}

// passed holds that from least to most requests on a key passed in each zone.
func (f *fleet) passed(key string, least, most int) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for zone := range zones {
		got := f.seen[zone+" "+key].allowed
		if got > most || isExact(zone) && got+f.lost < least {
			f.Errorf("%s in zone %s: %d passed, and %d answers on all keys were broken off; want %d to %d, with a limit of %d", key, zone, got, f.lost, least, most, limit)
		}
	}
}
