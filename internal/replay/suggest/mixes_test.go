package suggest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// hit is a request.
type hit struct {
	key string
	at  int64 // ns
}

// mix makes requests of clients whose kind is known by the first letter of their keys: crawlers have a c.
type mix struct {
	r    *rand.Rand
	from int64
	span time.Duration
	hits []hit
}

// page loads a page: a request, and what it needs within a second or two.
func (m *mix) page(key string, at int64, files int) {
	m.hits = append(m.hits, hit{key, at})
	for range files {
		m.hits = append(m.hits, hit{key, at + int64(m.r.ExpFloat64()*4e8)})
	}
}

// people visits a site: sessions of some pages, with pauses to read.
func (m *mix) person(key string, sessions, pages, files int, pause time.Duration) {
	for range sessions {
		at := m.from + m.r.Int64N(int64(m.span))
		for range 1 + m.r.IntN(2*pages) {
			m.page(key, at, m.r.IntN(files+1))
			at += int64(m.r.ExpFloat64() * float64(pause))
		}
	}
}

// crawler requests at a rate, at gaps that vary a little, for part of the time.
func (m *mix) crawler(key string, perSecond float64, lasts time.Duration) {
	start := m.r.Int64N(max(1, int64(m.span-lasts)))
	for at := start; at < start+int64(lasts); at += int64((0.8 + 0.4*m.r.Float64()) * 1e9 / perSecond) {
		m.hits = append(m.hits, hit{key, m.from + at})
	}
}

func (m *mix) people(n int) {
	for i := range n {
		m.person(fmt.Sprint("p", i), 1+m.r.IntN(4), 6, 12, 20*time.Second)
	}
}

// mixes have a known truth.
var mixes = map[string]func(*mix){
	"99 % people and 1 % crawlers, two plans": func(m *mix) {
		m.people(1500)
		for i := range 480 { // customers of the larger plan use an API from programs, in bursts
			m.person(fmt.Sprint("plan ", i), 4, 10, 30, 5*time.Second)
		}
		for i := range 20 {
			m.crawler(fmt.Sprint("c", i), 40+40*m.r.Float64(), 5*time.Minute)
		}
	},
	"an office behind one address": func(m *mix) {
		m.people(1500)
		for range 120 { // its people, all in one key
			m.person("p office", 1+m.r.IntN(4), 6, 12, 20*time.Second)
		}
		for i := range 15 {
			m.crawler(fmt.Sprint("c", i), 50+50*m.r.Float64(), 5*time.Minute)
		}
	},
	"bursts": func(m *mix) {
		for i := range 1500 { // galleries: a hundred files a page
			m.person(fmt.Sprint("p", i), 1+m.r.IntN(3), 3, 100, 30*time.Second)
		}
		for i := range 15 {
			m.crawler(fmt.Sprint("c", i), 60+60*m.r.Float64(), 5*time.Minute)
		}
	},
	"machines only": func(m *mix) {
		for i := range 100 {
			m.crawler(fmt.Sprint("p", i), 0.05+0.3*m.r.Float64(), m.span)
		}
	},
	"slow crawlers": func(m *mix) {
		m.people(1500)
		for i := range 15 {
			m.crawler(fmt.Sprint("c", i), 1.5+m.r.Float64(), 3*time.Hour)
		}
	},
}

// collect returns what a Collector says of hits, after it has sorted them.
func collect(t testing.TB, o Options, hits []hit) Result {
	t.Helper()
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	c := New(o)
	for _, h := range hits {
		if err := c.Add(h.key, h.at); err != nil {
			t.Fatal(err)
		}
	}
	return c.Result()
}

// isCrawler says the truth of a mix.
func isCrawler(key string) bool { return strings.HasPrefix(key, "c") }

// TestKnownMixes sees that the pair denies fewer than 0.1 % of people's requests, and more than 90 % of crawlers' excess:
// of what limits at the busiest person's peaks would deny. The memory store decides.
func TestKnownMixes(t *testing.T) {
	for name, fill := range mixes {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				m := &mix{r: rand.New(rand.NewPCG(seed, 4)), from: 1_700_000_000_000_000_000, span: 4 * time.Hour}
				fill(m)
				r := collect(t, Options{Windows: []time.Duration{time.Second, time.Minute, time.Hour}, Memory: 1 << 30, Top: 20}, m.hits)
				if len(r.Pair) != 2 {
					t.Fatalf("pair %v", r.Pair)
				}
				people, crawlers := 0, 0
				var peopleDenied, crawlersDenied int
				judge(t, r.Pair, window.Log{}, m.hits, func(h hit, passes bool) {
					n, denied := &people, &peopleDenied
					if isCrawler(h.key) {
						n, denied = &crawlers, &crawlersDenied
					}
					*n++
					if !passes {
						*denied++
					}
				})
				if int64(peopleDenied+crawlersDenied) != r.Denied.Requests {
					t.Errorf("says %d denied, the store %d", r.Denied.Requests, peopleDenied+crawlersDenied)
				}
				excess := excess(t, m, r.Pair)
				t.Logf("%v denies %d of %d people's, %d of %d crawlers' requests, excess %d", r.Pair, peopleDenied, people, crawlersDenied, crawlers, excess)
				if float64(peopleDenied) > 0.001*float64(people) {
					t.Errorf("denies %d of %d requests of people", peopleDenied, people)
				}
				if float64(crawlersDenied) < 0.9*float64(excess) {
					t.Errorf("denies %d of %d requests of crawlers", crawlersDenied, excess)
				}
			})
		}
	}
}

// excess returns how many requests of crawlers limits at the busiest person's peaks would deny.
func excess(t *testing.T, m *mix, pair []Limit) int {
	only := slices.Clone(m.hits)
	only = slices.DeleteFunc(only, func(h hit) bool { return isCrawler(h.key) })
	var windows []time.Duration
	for _, l := range pair {
		windows = append(windows, l.Window)
	}
	best := collect(t, Options{Windows: windows, Memory: 1 << 30}, only)
	var limits []Limit
	for _, w := range best.Windows {
		limits = append(limits, Limit{Limit: w.ByKey.Max, Window: w.Window})
	}
	n := 0
	judge(t, limits, window.Log{}, m.hits, func(h hit, passes bool) {
		if !passes && isCrawler(h.key) {
			n++
		}
	})
	return n
}

// TestWhole sees that the peaks of a log with whole seconds lie between its two bounds.
func TestWhole(t *testing.T) {
	windows := []time.Duration{time.Second, 7 * time.Second, time.Minute}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		at := int64(1_700_000_000_000_000_000)
		var exact, whole []hit
		for range r.IntN(300) + 1 {
			at += int64(r.ExpFloat64() * math.Pow(10, 6+4*r.Float64()))
			exact, whole = append(exact, hit{"k", at}), append(whole, hit{"k", at / 1e9 * 1e9})
		}
		a := collect(t, Options{Windows: windows, Memory: 1 << 30}, exact)
		b := collect(t, Options{Windows: windows, Memory: 1 << 30, WholeSeconds: true}, whole)
		for i := range windows {
			peak, least, most := a.Windows[i].ByKey.Max, b.Windows[i].AtLeast.Max, b.Windows[i].ByKey.Max
			if peak < least || peak > most {
				t.Fatalf("seed %d, %s: the peak is %d, not from %d to %d", seed, windows[i], peak, least, most)
			}
		}
	}
}
