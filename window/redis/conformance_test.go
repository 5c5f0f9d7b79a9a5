package redis_test

import (
	"context"
	"flag"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// server is shared by the tests that do no harm to it; each store has a prefix of
// its own.
var server *redistest.Server

func TestMain(m *testing.M) {
	goredis.SetLogger(quiet{})
	os.Exit(redistest.Main(leakChecked{m}, &server))
}

// quiet keeps go-redis from logging every server that a test kills.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	server.Kill()
	// A client that is closed looks for a server that is gone for a second more.
	err := goleak.Find()
	for start := time.Now(); err != nil && time.Since(start) < 5*time.Second; {
		err = goleak.Find()
	}
	if code == 0 && err != nil {
		println(err.Error())
		return 1
	}
	return code
}

var prefixes atomic.Int64

// freshPrefix returns one that no other test has had, nor this one before.
func freshPrefix(name string) string { return name + strconv.FormatInt(prefixes.Add(1), 10) }

// open returns a store that asks the server about every request: the suite compares
// every field.
func open(t *testing.T, clock *windowtest.Clock) window.Store {
	return redis.AskAlways(newStore(t, redis.Options{Now: clock.Now}))
}

// openRemembering returns a store that remembers denials, as all do but in tests.
func openRemembering(t *testing.T, clock *windowtest.Clock) window.Store {
	o := redis.Options{Now: clock.Now, Prefix: freshPrefix("remembers")}
	r := windowtest.NewRemembering(t, clock, newStore(t, o), redis.AskAlways(newStore(t, o)))
	t.Cleanup(func() {
		t.Logf("%d denials may have been remembered, %d did not know all, %d were late", r.Checked, r.Stale, r.Late)
	})
	return r
}

// newStore returns a store on the shared server, unless o names another, with
// its own prefix, unless o names one. Its timeout is patient with slow machines,
// unless o says otherwise.
func newStore(t *testing.T, o redis.Options) *redis.Store {
	if o.Addresses == nil {
		o.Addresses = []string{server.Addr}
	}
	if o.Prefix == "" {
		o.Prefix = freshPrefix("test")
	}
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	s := redis.New(o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestConformance decides the long tests of the suite in memory, and plays them to Redis in few
// round trips. Every field of every answer is compared, whatever a test looks at.
func TestConformance(t *testing.T) { windowtest.ExerciseRecorded(t, openMemory, open) }

// TestConformanceRemembering asks step by step, through Take and all that it remembers. It leaves
// out what is about slices, not about denials, and where nothing can be remembered:
//   - ZsetIsExact, LogIsExact, StreamIsExact, GCRALimitIsLowered and GCRAManyWindows have other
//     policies at each step, and a denial is remembered under its policies;
//   - LogEdges denies nothing;
//   - HistoryStays waits between two requests for longer than a denial is remembered;
//   - units that are held may come back at any time.
func TestConformanceRemembering(t *testing.T) {
	windowtest.Exercise(t, openRemembering, "AdaptiveSwitches", "LayersAreFineSlices", "ManyLayers", "ManySlices",
		"MillisecondLayersAreExact", "MillisecondSlicesAreExact", "StrictNeverOver", "WeightedWorstCase",
		"ZsetIsExact", "LogIsExact", "StreamIsExact", "GCRALimitIsLowered", "GCRAManyWindows", "LogEdges", "HistoryStays",
		"HeldTables", "HeldWalk")
}

// walks is less for make mutants.
var walks = flag.Int("walks", 200, "how many random walks TestAgreesWithMemory has, for each algorithm")

// TestAgreesWithMemory plays each walk in one round trip.
func TestAgreesWithMemory(t *testing.T) { windowtest.Agree(t, *walks, openMemory, open) }

// TestAgreesWithMemoryStepByStep asks Redis about each step by itself: through Take, where a
// request may go alone or with others.
func TestAgreesWithMemoryStepByStep(t *testing.T) {
	windowtest.Agree(t, 10, openMemory, func(t *testing.T, clock *windowtest.Clock) window.Store {
		return struct{ window.Store }{open(t, clock)} // which is no windowtest.Player
	})
}

// TestAgreesWithMemoryRemembering asks step by step, too, and remembers denials.
func TestAgreesWithMemoryRemembering(t *testing.T) {
	windowtest.Agree(t, 20, openMemory, openRemembering)
}

func openMemory(t *testing.T, clock *windowtest.Clock) window.Store {
	s := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestTwins holds that every algorithm has a script under its name.
func TestTwins(t *testing.T) {
	var names []string
	for _, a := range algorithms {
		names = append(names, a.Name())
	}
	if names = append(names, window.Concurrent{}.Name()); !slices.Equal(names, lua.Algorithms) {
		t.Errorf("algorithms %v, and scripts of %v", names, lua.Algorithms)
	}
}
