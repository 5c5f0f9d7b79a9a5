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
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Defaults of Options.
const (
	DefaultAddress = "localhost:6379"
	DefaultPrefix  = "sw"
	DefaultTimeout = 100 * time.Millisecond
)

// Permissions are the commands that the user of a store has to be allowed, in
// the words of ACL SETUSER, beside the keys ~<prefix>:*. It needs +select, too, for
// another database than 0; ClusterPermissions in a Cluster; and +cl.throttle for
// native gcra.
const Permissions = "+evalsha +script|load +time +pexpireat +unlink " +
	"+zadd +zcount +zrange +zrangebyscore +zrem +zremrangebyscore +zremrangebyrank +hgetall +hlen +hmget +hset +hdel +hrandfield " +
	"+get +mget +getrange +set +setrange +xadd +xrange +xrevrange +xtrim +xdel +xsetid"

// ClusterPermissions are those that a Cluster asks for in addition.
const ClusterPermissions = "+cluster|slots +asking"

// SentinelPermissions are those of the user at the Sentinels.
const SentinelPermissions = "&* -@all +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe"

// Options say which server to use and how.
type Options struct {
	// host:port or the path of a socket; several are the nodes of a Cluster or,
	// with Master, Sentinels. Default: DefaultAddress.
	Addresses []string
	// The name of the master that the Sentinels watch; empty for no Sentinel.
	Master string
	// Whether a single address is the node of a Cluster.
	Cluster bool
	// Credentials; empty for none.
	Username, Password                 string
	SentinelUsername, SentinelPassword string
	// The database; 0 in a Cluster.
	DB int
	// Nil for a plain connection.
	TLS *tls.Config
	// What the name of every key begins with. Default: DefaultPrefix.
	Prefix string
	// With a secret, the keys in Redis hold the HMAC-SHA256 of the keys of charges
	// under it. Empty: they hold the keys of charges unchanged.
	KeySecret string
	// The secret before that one, while there are stores that do not have the new
	// one yet, and for the longest window after: charges are made under both names.
	// CL.THROTTLE, which counts under one name, then takes no part; in a Cluster there
	// are then no leases, and what Settle gives back stays spent under the former
	// name, but not what SettleBatch does. Not without KeySecret, and not the same.
	FormerKeySecret string
	// The longest that one call waits, also for a connection; the context may
	// shorten it. Connections take longer if need be, for the calls that follow: four times
	// as long, or a second if that is more. Default: DefaultTimeout.
	Timeout time.Duration
	// Connections to each server at most. Default: 10 per CPU, 5 in a Cluster.
	PoolSize int
	// Report is told of units that could not be taken back, or booked for a lease within its
	// window, and of a lease that may stay booked as its reply was lost, each time: no
	// request fails of it. It must not wait. Nil: nobody is.
	Report func(error)
	// Tests set the time, in Unix milliseconds. Nil: the server's clock.
	Now func() int64
}

// Store implements window.Store, engine.Pinger and engine.Instancer.
type Store struct {
	client  goredis.UniversalClient
	cluster bool
	// How counters are named: in two ways while a secret changes.
	namings     []naming
	permissions string // all that the user needs
	timeout     time.Duration
	patience    time.Duration // for what goes on in the background
	now         func() int64
	name        string
	ids         ids
	denials     *denials
	gate        *gate // of a Cluster; nil for a single server
	leases      *leases
	report      func(error)
	// Whether a node of a Cluster has answered a store that was not told of one.
	elsewhere atomic.Bool
	// The time since any moment: that of this process, or of Options.Now.
	clock func() time.Duration
	// Whether the client of a Cluster has come to know which node holds what. Until then
	// it asks the nodes, one after the other.
	placed atomic.Bool
	// Until when servers count as without CL.THROTTLE, a time.Duration by address; ""
	// is the only one's.
	scriptOnly sync.Map
	// Whether a request that insists on CL.THROTTLE was refused since the last ping
	// that was not.
	noThrottle atomic.Bool
	// A *commit per server, by address; "" is the only one's.
	commits   sync.Map
	givebacks tasks // go on when their requests have been answered
	// Work apart from requests: connections and scripts on their way to servers.
	background *background
	// The last description that a server gave of itself.
	server atomic.Pointer[hello]
	trip   trip
	holds  holds
	// Charges that Ping must try: a window.Charge for each kind of counter with which a
	// request failed since the last successful ping.
	doubts sync.Map
	// Keys that PingPart asks about, by kind.
	pingKeys sync.Map
}

// New returns a store. It connects when it is first used, not before.
func New(o Options) *Store {
	if len(o.Addresses) == 0 {
		o.Addresses = []string{DefaultAddress}
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	if o.Now != nil {
		clock = func() time.Duration { return time.Duration(o.Now()) * time.Millisecond }
	}
	s := &Store{
		client:      o.client(),
		cluster:     o.isCluster(),
		namings:     newNamings(o),
		permissions: o.permissions(),
		timeout:     o.Timeout,
		patience:    o.connecting(),
		now:         o.Now,
		name:        o.name(),
		ids:         newIDs(),
		denials:     newDenials(clock),
		clock:       clock,
		report:      o.Report,
		background:  newBackground(),
	}
	if s.report == nil {
		s.report = func(error) {}
	}
	if s.cluster {
		s.gate = newGate()
	}
	s.leases = newLeases(s)
	s.onEach(o)
	return s
}

func (o Options) isCluster() bool { return o.Master == "" && (o.Cluster || len(o.Addresses) > 1) }

// client returns one that asks a Cluster for no COMMAND: it would do so with a time of
// its own, and all that is asked for here are scripts, of which it knows where they go.
func (o Options) client() goredis.UniversalClient {
	if !o.isCluster() {
		return goredis.NewUniversalClient(o.universal())
	}
	cluster := o.universal().Cluster()
	cluster.DisableRoutingPolicies = true
	return goredis.NewClusterClient(cluster)
}

func (o Options) universal() *goredis.UniversalOptions {
	// Commands that the client sends on its own have no context, above all CLUSTER SLOTS. A
	// node that hangs may be the first that is asked.
	patience := max(o.Timeout, time.Second)
	dialing := o.connecting()
	if o.Master != "" {
		dialing *= 2 // a Sentinel is asked first, and connected to
	}
	return &goredis.UniversalOptions{
		Addrs:            o.Addresses,
		MasterName:       o.Master,
		IsClusterMode:    o.isCluster(),
		SentinelUsername: o.SentinelUsername,
		SentinelPassword: o.SentinelPassword,
		TLSConfig:        o.TLS,
		PoolSize:         o.PoolSize,

		// A retry could charge twice; see scriptCmd for Cluster.
		MaxRetries:    -1,
		DialerRetries: 1,
		// The context of a call is what limits it. A connection that takes longer
		// is made all the same, for the calls that follow. See greeter for user, password
		// and database.
		ContextTimeoutEnabled: true,
		Dialer:                dialer(o.connecting(), o.TLS, o.Master != ""),
		DialTimeout:           dialing,
		ReadTimeout:           patience,
		WriteTimeout:          patience,
		PoolTimeout:           patience,
		// Nothing that a plain server has to refuse, and no look-up while a
		// configuration loads.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// permissions are all that the user needs, in the words of ACL SETUSER.
func (o Options) permissions() string {
	all := "~" + o.Prefix + ":* " + Permissions
	if o.isCluster() {
		all += " " + ClusterPermissions
	}
	if o.DB != 0 {
		all += " +select"
	}
	return all
}

// name tells stores apart: same name, same counters; but it holds no secret, nor what one
// could be guessed by, so that stores that differ only in KeySecret have one name.
func (o Options) name() string {
	kind := "redis"
	switch {
	case o.Master != "":
		kind = "redis sentinel " + o.Master
	case o.isCluster():
		kind = "redis cluster"
	}
	name := fmt.Sprintf("%s %s/%d %s", kind, strings.Join(o.Addresses, ","), o.DB, o.Prefix)
	if o.KeySecret != "" {
		name += " hashed"
	}
	return name
}

// String implements window.Store.
func (s *Store) String() string { return s.name }

// CheckAlgorithm implements engine.AlgorithmChecker.
func (s *Store) CheckAlgorithm(a window.Algorithm) error {
	if g, ok := a.(window.GCRA); ok && g.Native == window.NativeOn && len(s.namings) > 1 {
		return errors.New("algorithm gcra: native on: CL.THROTTLE cannot count under the names of two secrets; use native auto until the former one is taken out")
	}
	return nil
}

// Drain gives back what is left of leases, and takes no more of them. The store still
// decides, until Close.
func (s *Store) Drain() { s.leases.drain() }

// Close implements window.Store. It gives back what is left of leases, and waits a moment for
// receipts that are being settled.
func (s *Store) Close() error {
	s.Drain()
	for end := time.Now().Add(s.timeout); s.holds.n.Load() > 0 && time.Now().Before(end); {
		time.Sleep(again)
	}
	s.leases.debts.close()
	s.givebacks.close()
	s.background.close()
	return s.client.Close()
}

// Take implements window.Store. A request that was denied is denied again without the
// server, until a limit has room or a second has passed. A request whose charge has a lease
// passes without the server while the lease has units left.
//
// Cancelling ctx may not interrupt a call that was already sent: Take then returns when the
// server answers or the timeout expires.
func (s *Store) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (s *Store) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil || len(charges) == 0 {
		return nil, err
	}
	var leased *lessee
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		leased = s.leases.lessee(&charges[0])
	}
	var end time.Time // of all calls together, if there are several
	if leased != nil {
		var ds []window.Decision
		var err error
		if ds, end, err = s.leases.take(ctx, leased, &charges[0], room); err != nil {
			s.doubt(charges)
		}
		if ds != nil || err != nil {
			return ds, err
		}
	}
	if s.gate != nil && len(charges) > 1 {
		return s.takeInTurn(ctx, charges, room)
	}
	asked := s.denials.ask()
	if decisions := s.denials.answer(asked, charges, room); decisions != nil {
		return decisions, nil
	}
	if s.leases.owes(charges) {
		if err := s.leases.repay(ctx, &end, charges...); err != nil {
			s.doubt(charges)
			return nil, err
		}
	}
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	r := s.take(ctx, charges, room)
	if r.Err != nil {
		s.doubt(charges)
	}
	s.denials.remember(asked, charges, r.Decisions)
	if leased != nil {
		leased.answered(r.Decisions)
	}
	return r.Decisions, r.Err
}

// TakeBatch implements window.Store: one round trip for all requests that are not
// denied as in Take.
func (s *Store) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	asked := s.denials.ask()
	results := make([]window.Result, len(requests))
	var rest [][]window.Charge
	var places []int // of the rest among all
	for i, charges := range requests {
		results[i].Err = engine.CheckCharges(charges)
		if results[i].Err != nil || len(charges) == 0 {
			continue
		}
		if results[i].Decisions = s.denials.answer(asked, charges, nil); results[i].Decisions != nil {
			continue
		}
		if s.leases.owes(charges) {
			if results[i].Err = s.leases.repay(ctx, new(time.Time), charges...); results[i].Err != nil {
				continue
			}
		}
		rest, places = append(rest, charges), append(places, i)
	}
	for i, r := range s.decide(ctx, "take", rest) {
		s.denials.remember(asked, rest[i], r.Decisions)
		results[places[i]] = r
	}
	return results
}

// Peek implements window.Store. It asks the server, whatever is remembered or leased.
func (s *Store) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil || len(charges) == 0 {
		return nil, err
	}
	if s.leases.owes(charges) {
		if err := s.leases.repay(ctx, new(time.Time), charges...); err != nil {
			return nil, err
		}
	}
	r := s.decide(ctx, "peek", [][]window.Charge{charges})[0]
	return r.Decisions, r.Err
}

// Settle implements window.Store.
func (s *Store) Settle(ctx context.Context, charge window.Charge, at, delta int64) error {
	if err := engine.CheckSettle(charge, delta); err != nil || delta == 0 {
		return err
	}
	if delta < 0 && charge.Lease.Units > 0 && s.leases.giveBack(&charge, at, -delta) {
		return nil
	}
	if delta < 0 {
		defer s.denials.forget(&charge)
	} else if charge.Lease.Units > 0 {
		s.leases.endOf(&charge)
	}
	return s.all(ctx, s.newSettleCalls([][]window.Charge{{charge}}, at, delta))
}

// Reset implements window.Store.
func (s *Store) Reset(ctx context.Context, charge window.Charge) error {
	if err := engine.CheckReset(charge); err != nil {
		return err
	}
	s.leases.forget(&charge)
	defer s.denials.forget(&charge)
	var calls []*call
	for i := range s.namings {
		one := s.namings[i : i+1]
		calls = append(calls, s.newScriptCall(one, "reset", [][]window.Charge{{charge}}))
		if a, ok := charge.Algorithm.(window.GCRA); ok && a.Native != window.NativeOff {
			calls = append(calls, s.newNativeReset(one, charge))
		}
	}
	return s.all(ctx, calls)
}

// all makes calls that have nothing to say, and returns the first error.
func (s *Store) all(ctx context.Context, calls []*call) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.run(ctx, calls)
	return s.settleError(ctx, calls)
}

// settleError returns the first error of calls about one counter, under all of its names.
func (s *Store) settleError(ctx context.Context, calls []*call) error {
	err := s.firstError(ctx, calls)
	if err != nil && len(s.namings) > 1 && slices.ContainsFunc(calls, func(c *call) bool {
		return !uncharged(c.err) || len(c.namings) > 1 && errors.Is(err, window.ErrForeign)
	}) {
		return unknown{err} // it may be done under one of the names
	}
	return err
}

func (s *Store) firstError(ctx context.Context, calls []*call) error {
	for _, c := range calls {
		if c.err != nil {
			return s.fail(ctx, c.err)
		}
	}
	return nil
}

// Timeout returns the longest that one call waits.
func (s *Store) Timeout() time.Duration { return s.timeout }
