// Package redis is a window.Store on a Redis server that a fleet shares.
//
// The server's clock decides, inside one script: a request is one round trip,
// whatever its zones and algorithms, and requests that come at the same time share
// it. Some need none: those that were denied a moment ago, and those whose counter
// has a lease. In a Cluster each charge is a script call of its own, and what was
// charged is given back if another charge denies.
package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/client"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/denials"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/gate"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/rtt"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/tasks"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/totals"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Store implements window.Store. It is safe for concurrent use.
type Store struct {
	client  goredis.UniversalClient
	given   bool // whether the client is the caller's
	cluster bool
	// How counters are named: in two ways while a secret changes.
	namings  []naming.Naming
	timeout  time.Duration
	patience time.Duration // for what goes on in the background
	now      func() int64
	name     string
	writer   *wire.Writer
	words    failure.Words
	denials  *denials.Memory
	gate     *gate.Gate // of a Cluster; nil for a single server
	leases   *leases.Leases
	totals   *totals.Table // of units that are held
	report   func(error)
	// Whether a node of a Cluster has answered a store that was not configured for one.
	elsewhere atomic.Bool
	// The time since any moment: that of this process, or of Options.Now.
	clock func() time.Duration
	// Whether the client of a Cluster has come to know which node holds what. Until then
	// it asks the nodes, one after the other.
	placed atomic.Bool
	// The addresses of the nodes of a Cluster that hold slots; nil: not known.
	masters atomic.Pointer[[]string]
	met     atomic.Int64 // nodes that have come since all were looked at
	// Until when servers count as without CL.THROTTLE, a time.Duration by address; ""
	// is the only one's.
	scriptOnly sync.Map
	// Whether a request that insists on CL.THROTTLE was refused since the last ping
	// that was not.
	noThrottle atomic.Bool
	// A *batch.Batcher per server, by address; "" is the only one's.
	batchers  sync.Map
	givebacks tasks.Group // go on when their requests have been answered
	// Work apart from requests: connections and scripts on their way to servers.
	background *tasks.Background
	// The last description that a server gave of itself.
	server atomic.Pointer[client.Hello]
	rtt    *rtt.Estimate
	holds  holds
	// Charges that Ping must try: a window.Charge for each kind of counter with which a
	// request failed since the last successful ping.
	doubts sync.Map
	// Keys that PingPart asks about, by kind.
	pingKeys sync.Map
	locally  locally
}

// New returns a store. It connects when it is first used, not before.
func New(o Options) *Store {
	o = o.withDefaults()
	s := newStore(o.client(), o)
	s.onEach(o)
	return s
}

// newStore returns a store without hooks of its client.
func newStore(client goredis.UniversalClient, o Options) *Store {
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	var own func() time.Duration // nil: the clocks of this process
	if o.Now != nil {
		clock = func() time.Duration { return time.Duration(o.Now()) * time.Millisecond }
		own = clock
	}
	namings := naming.New(o.Prefix, o.KeySecret, o.FormerKeySecret)
	s := &Store{
		client:     client,
		cluster:    o.isCluster(),
		namings:    namings,
		timeout:    o.Timeout,
		patience:   o.connecting(),
		now:        o.Now,
		name:       o.name(),
		writer:     wire.NewWriter(namings, o.Now),
		denials:    denials.New(clock),
		clock:      clock,
		report:     o.Report,
		background: tasks.NewBackground(),
		rtt:        rtt.New(o.Timeout, o.connecting()),
	}
	s.words = failure.Words{
		Store: s.name, Timeout: s.timeout, Cluster: s.cluster,
		Permissions: o.permissions(), SentinelUser: SentinelPermissions,
		PartOfCluster: func() { s.elsewhere.Store(true) },
	}
	if s.cluster {
		s.gate = gate.New(batch.QueueLength)
	}
	s.totals = totals.New(totals.Env{Context: s.background.Context, Now: s.clock, Tell: s.tell, Reclaimed: o.Reclaimed})
	s.writer.Totals = s.totals
	s.leases = leases.New(leases.Env{
		Now:     leases.NewClocks(own),
		Timeout: s.timeout,
		// With two names on two nodes of a Cluster, the bookings would have two times.
		None: s.cluster && len(s.namings) > 1,
		Take: s.take,
		Peek: func(ctx context.Context, requests [][]window.Charge) []window.Result {
			return s.decide(ctx, wire.Peek, requests)
		},
		Book:   s.book,
		Ping:   s.Ping,
		Weight: s.weightOf,
		Fail:   s.words.FailUncharged,
		Report: s.report,
	})
	return s
}

// onEach has every server greeted on new connections, and given the script when it turns out
// not to know it.
func (s *Store) onEach(o Options) {
	// The first hook is the outermost one.
	each := func(server *goredis.Client) {
		sharing := &client.Sharing{Retry: !s.cluster, Tell: o.Few}
		server.AddHook(&client.Loader{Each: only(server), Background: s.background, Patience: s.patience})
		server.AddHook(&client.WarmPool{Server: server, Background: s.background, Patience: s.patience, Need: func() bool {
			return s.rtt.IsFar() && !sharing.IsFew()
		}})
		// A node that does not decide in time does not say in time who holds what, either.
		server.AddHook(client.Topology{Address: server.Options().Addr, Patience: max(o.Timeout, time.Second/2)})
		server.AddHook(new(client.Renewal))
		server.AddHook(sharing)
		server.AddHook(client.Handshake{
			Username: o.Username, Password: o.Password, DB: o.DB,
			Context: s.background.Context, OnHello: s.server.Store, Seed: s.rtt.Seed,
		})
	}
	switch c := s.client.(type) {
	case *goredis.Client:
		each(c)
	case *goredis.ClusterClient:
		c.OnNewNode(each)
		c.OnNewNode(func(*goredis.Client) { s.metNode() })
	}
}

// String implements window.Store.
func (s *Store) String() string { return s.name }

// Close implements window.Store. It gives back what is left of leases, and all units that are held, and waits a moment for
// receipts that are being settled. A client that was given stays open.
func (s *Store) Close() error {
	s.leases.Drain()
	for end := time.Now().Add(s.timeout); s.isSettling() && time.Now().Before(end); {
		time.Sleep(again)
	}
	s.locally.close()
	s.totals.Close()
	s.leases.Close()
	s.givebacks.Close()
	s.background.Close()
	if s.given {
		return nil
	}
	return s.client.Close()
}

// Shown returns an error of the client in words that do not come from a server.
func Shown(err error) error { return failure.Shown(err) }

// IsDialError reports whether an error of the client is that of a connection which a store of this
// package could not make.
func IsDialError(err error) bool {
	return errors.As(err, new(failure.UnwrittenError)) || errors.As(err, new(failure.UnsharedError))
}
