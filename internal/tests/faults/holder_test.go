package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// lease is that of units that are held: the shortest that a configuration can have.
const lease = 2 * time.Second

// slotOf is a charge that holds one unit of a counter.
func slotOf(key string, limit int64) window.Charge {
	return window.Charge{Zone: "held", Key: key, Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: limit, Window: lease}}}
}

// holderOf names the variable that makes this program a holder: it has the address of the server.
const holderOf = "SLIDING_WINDOW_HOLDER_OF"

// hold is the program of a holder: a process with a store. It reads commands, and answers each with a number.
func hold(address string) {
	store := redis.New(redis.Options{Addresses: []string{address}, Timeout: time.Second})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var word, key string
		var units, limit, n int64
		_, _ = fmt.Sscan(lines.Text(), &word, &key, &units, &limit)
		switch word {
		case "take":
			for range units {
				if ds, err := store.Take(context.Background(), []window.Charge{slotOf(key, limit)}); err == nil && window.Allowed(ds) {
					n++
				}
			}
		case "free":
			_ = store.GiveBack(context.Background(), slotOf(key, limit), 0, units)
		case "close":
			_ = store.Close()
		}
		fmt.Println(n)
	}
}

// holder is a process that holds units, which can be killed or stopped.
type holder struct {
	*testing.T
	run     *exec.Cmd
	in      io.Writer
	answers *bufio.Reader
}

func startHolder(t *testing.T, address string) *holder {
	t.Helper()
	h := &holder{T: t, run: exec.Command(os.Args[0])}
	h.run.Env = append(os.Environ(), holderOf+"="+address)
	h.run.Stderr = os.Stderr
	in, err := h.run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.run.Start(); err != nil {
		t.Fatal(err)
	}
	h.in, h.answers = in, bufio.NewReader(out)
	t.Cleanup(h.kill)
	return h
}

// ask sends a command, and returns its answer.
func (h *holder) ask(format string, args ...any) (n int64) {
	h.Helper()
	if _, err := fmt.Fprintf(h.in, format+"\n", args...); err != nil {
		h.Fatal(err)
	}
	if _, err := fmt.Fscanln(h.answers, &n); err != nil {
		h.Fatal(err)
	}
	return n
}

func (h *holder) kill() {
	if h.run.ProcessState == nil {
		_ = h.run.Process.Kill()
		_ = h.run.Wait()
	}
}

func (h *holder) signal(s os.Signal) { _ = h.run.Process.Signal(s) }

// newHeld returns a store that holds units, and looks at who else does.
func newHeld(t *testing.T, address string) *redis.Store {
	s := redis.New(redis.Options{Addresses: []string{address}, Timeout: time.Second})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// totals returns what the server counts for the processes that it has heard of within the lease.
func totals(t *testing.T, s *redis.Store, key string) []engine.Total {
	t.Helper()
	all, err := s.Engine().(engine.TotalsLister).Totals(t.Context(), slotOf(key, 1))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// takes takes one unit after the other until one is denied, and returns how many it got.
func takes(t *testing.T, s *redis.Store, key string, limit int64) (n int64) {
	t.Helper()
	for {
		ds, err := s.Take(t.Context(), []window.Charge{slotOf(key, limit)})
		if err != nil {
			t.Fatal(err)
		}
		if !window.Allowed(ds) {
			return n
		}
		n++
	}
}

// Units of a process that is killed are free when the server has not heard of it for its lease, and none before. Those of
// one that ends are free at once.
func TestKilledHolder(t *testing.T) {
	const counters, units = 500, 500 // of one counter, and one of each of the others
	server := startRemote(t).server
	survivor := newHeld(t, server.Addr)
	take := func(h *holder) {
		t.Helper()
		n := h.ask("take shared %d %d", units, units)
		for i := range counters {
			n += h.ask("take own-%d 1 1", i)
		}
		if n != counters+units {
			t.Fatalf("%d units are held, want %d", n, counters+units)
		}
	}
	keys := []string{"shared"}
	for i := range counters {
		keys = append(keys, fmt.Sprint("own-", i))
	}
	// free takes a unit of each counter as soon as it can, and returns when that was.
	free := func(began time.Time) map[string]time.Time {
		t.Helper()
		at := make(map[string]time.Time)
		for len(at) < len(keys) && time.Since(began) < 2*lease {
			var requests [][]window.Charge
			var asked []string
			for _, key := range keys {
				if at[key].IsZero() {
					limit := int64(1)
					if key == "shared" {
						limit = units
					}
					requests, asked = append(requests, []window.Charge{slotOf(key, limit)}), append(asked, key)
				}
			}
			for i, r := range survivor.TakeBatch(t.Context(), requests) {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if window.Allowed(r.Decisions) {
					at[asked[i]] = time.Now()
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		return at
	}
	back := func() {
		for _, key := range keys {
			_ = survivor.GiveBack(t.Context(), slotOf(key, 1), 0, units)
		}
	}

	h := startHolder(t, server.Addr)
	take(h)
	h.signal(syscall.SIGKILL)
	_ = h.run.Wait()
	killed := time.Now()
	heard := make(map[string]time.Time)
	for _, key := range keys {
		before := time.Now()
		all := totals(t, survivor, key)
		if len(all) != 1 {
			t.Fatalf("%s: %+v, want what the holder held", key, all)
		}
		heard[key] = before.Add(-all[0].Silent)
	}
	at := free(killed)
	first, last := 2*lease, time.Duration(0)
	for _, key := range keys {
		if at[key].IsZero() {
			t.Errorf("%s: not free %s after the end of the process", key, 2*lease)
			continue
		}
		if early := heard[key].Add(lease).Sub(at[key]); early > 2*time.Millisecond { // the server's clock is rounded to 1 ms
			t.Errorf("%s: free %s before the end of the lease", key, early)
		}
		first, last = min(first, at[key].Sub(killed)), max(last, at[key].Sub(killed))
	}
	if n := takes(t, survivor, "shared", units); n != units-1 {
		t.Errorf("%d more of the shared counter are free, want %d", n, units-1)
	}
	if last > lease+time.Second {
		t.Errorf("all are free %s after the end of the process, want %s at most", last, lease+time.Second)
	}
	t.Logf("killed: the first free after %s, the last after %s, of a lease of %s", first, last, lease)
	back()

	h = startHolder(t, server.Addr)
	holdsNone(t, survivor, keys...)
	take(h)
	ended := time.Now()
	h.ask("close")
	closed := time.Now()
	at = free(closed)
	for _, key := range keys {
		if d := at[key].Sub(closed); at[key].IsZero() || d > time.Second {
			t.Errorf("%s: free %s after a process has ended, want at once", key, d)
		}
	}
	t.Logf("ended: told within %s", closed.Sub(ended))
	back()
}

// A process that was stopped for longer than its lease has lost what it held: the others may take as much. It gets nothing new
// when it goes on, and its units count again within a second.
func TestFrozenHolder(t *testing.T) {
	const limit, own = 10, 6
	server := startRemote(t).server
	survivor := newHeld(t, server.Addr)
	h := startHolder(t, server.Addr)
	if n := h.ask("take k %d %d", own, limit); n != own {
		t.Fatalf("%d units are held, want %d", n, own)
	}
	if n := takes(t, survivor, "k", limit); n != limit-own {
		t.Fatalf("%d are left, want %d", n, limit-own)
	}
	h.signal(syscall.SIGSTOP)
	time.Sleep(lease + time.Second)
	if n := takes(t, survivor, "k", limit); n != own {
		t.Errorf("%d more while the process is stopped, want the %d that it held", n, own)
	}
	woken := time.Now()
	h.signal(syscall.SIGCONT)
	if n := h.ask("take k 50 %d", limit); n != 0 {
		t.Errorf("the process takes %d when it goes on, want none", n)
	}
	for len(totals(t, survivor, "k")) < 2 {
		if time.Since(woken) > time.Second {
			t.Fatalf("after a second: %+v", totals(t, survivor, "k"))
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d over the limit, counted again after %s", own, time.Since(woken).Round(time.Millisecond))
	_ = survivor.GiveBack(t.Context(), slotOf("k", limit), 0, limit)
	if n := takes(t, survivor, "k", limit); n != limit-own {
		t.Errorf("%d are left beside what the process holds, want %d", n, limit-own)
	}
	h.ask("free k %d %d", own, limit)
	_ = survivor.GiveBack(t.Context(), slotOf("k", limit), 0, limit)
	holdsNone(t, survivor, "k")
}

// holdsNone holds that the server counts nothing for any process within a second.
func holdsNone(t *testing.T, s *redis.Store, keys ...string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var left []string
		for _, key := range keys {
			for _, total := range totals(t, s, key) {
				left = append(left, fmt.Sprintf("%s: %+v", key, total))
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(start) > time.Second {
			t.Fatalf("leaked:\n%s", strings.Join(left, "\n"))
		}
	}
}
