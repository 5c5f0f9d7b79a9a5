package load

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// visitor is a client of a fairModel.
type visitor struct {
	every  time.Duration // between two of its bursts
	first  time.Duration // when that is
	burst  int           // requests of each
	took   time.Duration // until it is answered
	failed bool          // with 5xx, or not at all
	sent   int
	denied int
}

// pending is an answer that will come.
type pending struct {
	at   time.Time
	from int // the visitor's number
}

// line holds answers that will come, the first one first.
type line []pending

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *line) Push(x any)        { *l = append(*l, x.(pending)) }
func (l *line) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// fairModel is the Caddyfile of the recipe, in time of its own: a limit of each client, and one of all that follows the
// latency.
type fairModel struct {
	*bench
	store     window.Store
	perClient int64
	visitors  []*visitor
	lowest    float64
}

func newFairModel(t *testing.T) *fairModel {
	o := Options{Floor: 0.3, Ceiling: 1, Recover: time.Minute}
	o.Ranges[Latency] = Range{0.2, 1}
	m := &fairModel{bench: newBench(t, o), perClient: 100, lowest: 1}
	m.store = memory.New(memory.Options{Now: func() int64 { return m.now.UnixMilli() }})
	t.Cleanup(func() { _ = m.store.Close() })
	return m
}

// run sends the requests of the visitors for a time, and returns the lowest factor.
func (m *fairModel) run(length time.Duration) {
	m.Helper()
	var coming line
	begin, sampled := m.now, m.now
	for ; m.now.Sub(begin) < length; m.now = m.now.Add(5 * time.Millisecond) {
		passed := m.now.Sub(begin)
		for i, v := range m.visitors {
			if (passed-v.first)%v.every != 0 {
				continue
			}
			for range v.burst {
				v.sent++
				ds, err := m.store.Take(context.Background(), []window.Charge{
					{Zone: "per_client", Key: fmt.Sprint(i), Cost: 1, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: m.perClient, Window: 10 * time.Second}}},
					{Zone: "everybody", Key: "all", Cost: 1, Algorithm: window.Zset{}, Policies: []window.Policy{Scale(window.Policy{Limit: 60, Window: time.Second}, m.Factor())}},
				})
				if err != nil {
					m.Fatal(err)
				}
				if !window.Allowed(ds) {
					v.denied++
					continue
				}
				heap.Push(&coming, pending{m.now.Add(v.took), i})
			}
		}
		for len(coming) > 0 && !coming[0].at.After(m.now) {
			m.answered(heap.Pop(&coming).(pending).from)
		}
		if m.now.Sub(sampled) >= Interval {
			m.sampler.Step(m.now)
			sampled, m.lowest = m.now, min(m.lowest, m.Factor())
		}
	}
}

func (m *fairModel) answered(i int) {
	c := ClientOf(fmt.Sprint(i))
	if v := m.visitors[i]; v.failed {
		m.Failed(c)
	} else {
		m.Answered(c, v.took)
	}
}

// others adds n visitors with fast answers, which together send a number of requests a second.
func (m *fairModel) others(n, perSecond int) {
	every := time.Duration(n) * time.Second / time.Duration(perSecond)
	for i := range n {
		first := (every * time.Duration(i) / time.Duration(n)).Truncate(5 * time.Millisecond)
		m.visitors = append(m.visitors, &visitor{every: every, first: first, burst: 1, took: 10 * time.Millisecond})
	}
}

// deniedShare returns the share of the requests of visitors that was denied.
func deniedShare(all []*visitor) float64 {
	sent, denied := 0, 0
	for _, v := range all {
		sent += v.sent
		denied += v.denied
	}
	return float64(denied) / float64(max(1, sent))
}

// One client alone does not lower the limit of the others: whatever it asks for fails, is slow, or is given up.
func TestOneClientDoesNotLowerTheLimitOfAll(t *testing.T) {
	for _, others := range []struct{ clients, perSecond int }{{8, 40}, {2, 40}, {1, 40}, {3, 6}, {30, 40}} {
		for _, c := range []struct {
			name string
			visitor
		}{
			{"nothing", visitor{every: time.Hour, burst: 0}},
			{"16 requests 502 in 12 s", visitor{every: 12 * time.Second, burst: 16, took: 5 * time.Millisecond, failed: true}},
			{"3 requests 502 in 2 s", visitor{every: 2 * time.Second, burst: 3, took: 5 * time.Millisecond, failed: true}},
			{"8/s 502", visitor{every: 125 * time.Millisecond, burst: 1, took: 5 * time.Millisecond, failed: true}},
			{"8/s that take 1.2 s", visitor{every: 125 * time.Millisecond, burst: 1, took: 1200 * time.Millisecond}},
			{"8/s hung up after 1.1 s", visitor{every: 125 * time.Millisecond, burst: 1, took: 1100 * time.Millisecond, failed: true}},
			{"50 at once in 5 s", visitor{every: 5 * time.Second, burst: 50, took: 2 * time.Second}},
		} {
			t.Run(fmt.Sprintf("%d others/%s", others.clients, c.name), func(t *testing.T) {
				m := newFairModel(t)
				m.perClient = int64(max(100, 20*others.perSecond/others.clients))
				m.others(others.clients, others.perSecond)
				attacker := c.visitor
				m.visitors = append(m.visitors, &attacker)
				m.run(36 * time.Second)
				share := deniedShare(m.visitors[:others.clients])
				t.Logf("others denied %.1f %%, lowest factor %.2f", 100*share, m.lowest)
				// What one burst takes of the limit of all is what that limit allows it, and no matter of load.
				if share > 0.01 && c.burst < 50 || m.lowest < 0.95 {
					t.Errorf("others denied %.1f %%, lowest factor %.2f; want 1 %% and 0.95", 100*share, m.lowest)
				}
			})
		}
	}
}

// A back end that is slow for all lowers the limit, however many they are, and whoever sends the most.
func TestAllClientsLowerTheLimit(t *testing.T) {
	for name, visitors := range map[string][]*visitor{
		"one":                         {{every: 25 * time.Millisecond, burst: 1}},
		"two":                         {{every: 50 * time.Millisecond, burst: 1}, {every: 50 * time.Millisecond, burst: 1}},
		"one with most, three others": {{every: 25 * time.Millisecond, burst: 1}, {every: time.Second, burst: 1}, {every: time.Second, burst: 1}, {every: time.Second, burst: 1}},
		"one, and a probe of it that is answered at once": {{every: 25 * time.Millisecond, burst: 1}, {every: time.Second, burst: 1, took: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFairModel(t)
			m.perClient = 1000
			m.visitors = visitors
			for _, v := range visitors {
				if v.took == 0 {
					v.took = 1500 * time.Millisecond
				}
			}
			m.run(8 * time.Second)
			if f := m.Factor(); f > 0.31 {
				t.Errorf("factor %.2f, want the floor", f)
			}
		})
	}
	t.Run("20", func(t *testing.T) {
		m := newFairModel(t)
		m.others(20, 50)
		m.run(10 * time.Second)
		if f := m.Factor(); f != 1 {
			t.Errorf("before: factor %.2f, want 1", f)
		}
		for _, v := range m.visitors[:5] {
			v.took = 1500 * time.Millisecond
		}
		m.run(10 * time.Second)
		if f := m.Factor(); f > 0.31 {
			t.Errorf("five of twenty clients are slow: factor %.2f, want the floor", f)
		}
	})
}

// A client that sends very many requests displaces none of the others, and to note a request takes no memory.
func TestSamplesAreBounded(t *testing.T) {
	l := newLatencies()
	clients := make([]Client, 20)
	for i := range clients {
		clients[i] = Client(i)<<40 | Client(i) // a row for each
		for range 3 {
			l.add(clients[i], time.Millisecond)
		}
	}
	for range 100_000 {
		l.add(clients[0], time.Second)
	}
	l.sample()
	for i, c := range l.clients {
		if want := map[bool]int{true: places, false: 3}[i == 0]; c.all != want {
			t.Errorf("client %d has %d samples, want %d", i, c.all, want)
		}
	}
	for range slots {
		l.sample()
	}
	if r := l.sample(); r.known || len(l.timed) != 0 {
		t.Errorf("after 5 s %d samples are looked at", len(l.timed))
	}
	if n := testing.AllocsPerRun(1000, func() {
		l.add(ClientAt("2001:db8::1"), time.Second)
		l.add(ClientAt("192.0.2.1"), time.Second)
		l.add(ClientOf("a key"), time.Second)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Requests are noted while samples are taken.
func TestSamplesOfManyGoroutines(t *testing.T) {
	l := newLatencies()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 20_000 {
				l.add(Client(i+j%3)<<40|Client(i), time.Duration(j)*time.Microsecond)
			}
		})
	}
	for range 50 {
		l.sample()
	}
	all.Wait()
	for i := range Client(50) {
		l.add(i<<40|i, time.Second)
	}
	if r := l.sample(); !r.known {
		t.Error("the percentile is not known")
	}
}
