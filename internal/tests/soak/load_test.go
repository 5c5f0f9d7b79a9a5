package soak_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

const (
	callers = 12
	keys    = 1 // of each zone: with more, a slow machine reaches no limit
)

// counter is a key of a zone.
type counter struct {
	zone string
	key  int
}

// load is what callers ask of the Caddys, and what they get.
type load struct {
	*testing.T
	addresses []string
	start     time.Time
	stop      chan struct{}
	group     sync.WaitGroup
	client    *http.Client

	mu       sync.Mutex // guards all below; callers take it when they end
	admitted map[counter][]admission
	statuses map[string]map[int]int // by zone
	closed   int                    // connections that found a listener closing
	longest  time.Duration

	served, probes atomic.Int64
}

func startLoad(t *testing.T, seed uint64, addresses []string) *load {
	l := &load{
		T: t, addresses: addresses, start: time.Now(), stop: make(chan struct{}), client: caddyrun.NewClient(t),
		admitted: make(map[counter][]admission), statuses: make(map[string]map[int]int),
	}
	names := []string{ledger, ledgerLocal}
	for _, z := range zones {
		names = append(names, z.name)
	}
	for i := range callers {
		l.group.Go(func() { l.call(rand.New(rand.NewPCG(seed, uint64(i))), names) })
	}
	return l
}

// call asks for one after the other until the load ends.
func (l *load) call(r *rand.Rand, names []string) {
	admitted := make(map[counter][]admission)
	statuses := make(map[string]map[int]int)
	for _, name := range names {
		statuses[name] = make(map[int]int)
	}
	var closed int
	var longest time.Duration
	for {
		select {
		case <-l.stop:
			l.mu.Lock()
			defer l.mu.Unlock()
			for c, all := range admitted {
				l.admitted[c] = append(l.admitted[c], all...)
			}
			for name, n := range statuses {
				if l.statuses[name] == nil {
					l.statuses[name] = make(map[int]int)
				}
				for status, n := range n {
					l.statuses[name][status] += n
				}
			}
			l.closed += closed
			l.longest = max(l.longest, longest)
			return
		default:
		}
		c := counter{names[r.IntN(len(names))], r.IntN(keys)}
		a := admission{sent: time.Since(l.start)}
		status, _, err := l.ask(l.addresses[r.IntN(len(l.addresses))], c)
		a.got = time.Since(l.start)
		if err != nil {
			closed++
			continue
		}
		l.served.Add(1)
		statuses[c.zone][status]++
		longest = max(longest, a.got-a.sent)
		if status == http.StatusOK {
			admitted[c] = append(admitted[c], a)
		}
	}
}

// ask returns the status and the field RateLimit.
func (l *load) ask(address string, c counter) (int, string, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/"+c.zone, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Key", strconv.Itoa(c.key))
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("RateLimit"), err
}

// end stops the callers.
func (l *load) end() {
	close(l.stop)
	l.group.Wait()
	l.client.CloseIdleConnections()
}

// counted returns how many units a ledger holds, but for those that it takes to ask:
// each Caddy is asked about each key, for it to book what it owes.
func (l *load) counted(name string) (n int64) {
	l.Helper()
	for key := range keys {
		for i, address := range l.addresses {
			status, field, err := l.ask(address, counter{name, key})
			if err != nil || status != http.StatusOK {
				l.Fatalf("%s: status %d, %v", name, status, err)
			}
			if i < len(l.addresses)-1 {
				continue
			}
			var left int64
			if _, err := fmt.Sscanf(field, `"`+name+`";r=%d;`, &left); err != nil {
				l.Fatalf("%s: RateLimit %q: %v", name, field, err)
			}
			n += ledgerLimit - left - int64(len(l.addresses))
		}
	}
	return n
}
