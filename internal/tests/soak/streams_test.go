package soak_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

const (
	mostStreams   = 5
	streamCallers = 12
	streamLease   = 3 * time.Second
	// beat is how long a process that is well may be silent.
	beat = 500 * time.Millisecond
	// streamsHeal is how soon after a fault no stream above the limit is admitted.
	streamsHeal = time.Second
)

// period is when a fault lasted, until each Caddy decided by Redis again.
type period struct{ begin, end time.Time }

// silent reports whether a process may have been silent for the lease: what it holds may be admitted once more then.
func (p period) silent() bool { return p.end.Sub(p.begin)+2*beat >= streamLease }

// streams are answers that last for a moment, at most mostStreams at a time. The back end counts those that are open.
type streams struct {
	*testing.T
	backEnd   string
	addresses []string // of the Caddys, the last of which is the victim
	victim    *caddyrun.Process
	born      time.Time // when the victim was started
	client    *http.Client
	stop      chan struct{}
	group     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	open     int
	most     int
	admitted []time.Time // above the limit
	statuses map[int]int
	cut      int // by the end of a Caddy
	free     time.Duration
}

func startStreams(t *testing.T) *streams {
	s := &streams{T: t, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.backEnd = server.Listener.Addr().String()
	return s
}

// ServeHTTP implements [http.Handler]. A request says for how many ms its answer lasts.
func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.open++
	if s.most = max(s.most, s.open); s.open > mostStreams {
		s.admitted = append(s.admitted, time.Now())
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	_, _ = io.WriteString(w, "begun")
	_ = http.NewResponseController(w).Flush()
	ms, _ := strconv.Atoi(r.Header.Get("X-Lasts"))
	select {
	case <-r.Context().Done():
	case <-time.After(time.Duration(ms) * time.Millisecond):
	}
}

// route is that of the streams in a Caddyfile.
func (s *streams) route() string {
	return fmt.Sprintf(`handle /streams {
	sliding_window {
		zone streams {
			key {header.X-Key}
			concurrent %d {
				lease %s
			}
		}
	}
	reverse_proxy %s {
		flush_interval -1
		transport http {
			keepalive off
		}
	}
}
`, mostStreams, streamLease, s.backEnd)
}

// startVictim starts the Caddy that is killed now and then.
func (w *world) startVictim() {
	s := w.streams
	address := s.addresses[len(s.addresses)-1]
	s.victim, s.born = caddyrun.Start(w.T, w.caddyfile(address, 0), address), time.Now()
}

// start lets callers ask for streams, until end.
func (s *streams) start(seed uint64) {
	s.mu.Lock()
	s.most, s.admitted, s.statuses, s.cut = 0, nil, make(map[int]int), 0
	s.mu.Unlock()
	s.stop = make(chan struct{})
	for i := range streamCallers {
		s.group.Go(func() { s.call(rand.New(rand.NewPCG(seed, uint64(1000+i)))) })
	}
}

func (s *streams) end() {
	close(s.stop)
	s.group.Wait()
}

func (s *streams) call(r *rand.Rand) {
	for {
		req, _ := http.NewRequest(http.MethodGet, "http://"+s.addresses[r.IntN(len(s.addresses))]+"/streams", http.NoBody)
		req.Header.Set("X-Key", "0")
		lasts := r.IntN(300)
		if r.IntN(10) == 0 {
			lasts = r.IntN(4_000) // also for longer than the lease
		}
		req.Header.Set("X-Lasts", strconv.Itoa(lasts))
		status := 0
		resp, err := s.client.Do(req)
		if err == nil {
			status = resp.StatusCode
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		s.mu.Lock()
		if s.statuses[status]++; err != nil && status == http.StatusOK {
			s.cut++
		}
		s.mu.Unlock()
		pause := time.Duration(0)
		if status != http.StatusOK {
			pause = time.Duration(5+r.IntN(20)) * time.Millisecond
		}
		select {
		case <-s.stop:
			return
		case <-time.After(pause):
		}
	}
}

// checkStreams holds that no stream above the limit was admitted but while a process may have been silent for its lease, and no
// more then than processes held; and that all slots are free once the streams are over.
func (w *world) checkStreams(l *load) {
	s := w.streams
	for _, address := range s.addresses {
		start, patience := time.Now(), max(streamsHeal, time.Until(s.born.Add(streamLease+streamsHeal)))
		for {
			status, field, err := l.ask(address, counter{"streams", 0})
			left := -1
			_, _ = fmt.Sscanf(field, `"streams";r=%d`, &left)
			if err == nil && status == http.StatusOK && left == mostStreams-1 {
				break
			}
			if time.Since(start) > patience {
				w.Errorf("slots have leaked: status %d, RateLimit %q, %v", status, field, err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.free = max(s.free, time.Since(start))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 2*mostStreams {
		w.Errorf("%d streams were open at once, want %d at most: the limit, and once more what silent processes held", s.most, 2*mostStreams)
	}
	for _, at := range s.admitted {
		excused := false
		for _, p := range w.periods {
			excused = excused || p.silent() && at.After(p.begin) && at.Before(p.end.Add(streamsHeal))
		}
		if !excused {
			w.Errorf("a stream above the limit was admitted at %s", at.Format(time.TimeOnly+".000"))
		}
	}
	for _, p := range w.caddys {
		caddyrun.Eventually(w.T, 20*time.Second, "no request is open", func() bool { return w.metric(p, "caddy_sliding_window_concurrent") == 0 })
	}
	if s.statuses[http.StatusOK] == 0 || s.statuses[http.StatusTooManyRequests] == 0 {
		w.Errorf("statuses %v: this is no load", s.statuses)
	}
}

func (s *streams) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("| streams | at most at once | passed | cut off | denied | open at most | over, with a process silent for its lease | over otherwise | all free after |\n|---|---|---|---|---|---|---|---|---|\n"+
		"| `concurrent %d` | %[1]d | %d | %d | %d | %d | %d | 0 | %d ms |\n",
		mostStreams, s.statuses[http.StatusOK], s.cut, s.statuses[http.StatusTooManyRequests], s.most, len(s.admitted), s.free.Milliseconds())
}
