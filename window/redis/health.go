package redis

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Ping reports whether the server decides. It spends on counters of its own, because a server
// that answers PING may still refuse to write. After requests failed it spends on one counter of each
// kind with which they failed: each kind takes other commands, and one may not be allowed.
func (s *Store) Ping(ctx context.Context) error {
	var charges []window.Charge
	s.doubts.Range(func(_, c any) bool {
		charges = append(charges, c.(window.Charge))
		return true
	})
	if charges == nil {
		charges = []window.Charge{pingCharge(window.Zset{}, 0)}
	}
	if s.elsewhere.Load() { // which no node of a Cluster decides on together
		another := pingCharge(window.Zset{}, 0)
		another.Key = "another"
		charges = append(charges, another)
	}
	var err error
	if s.cluster {
		err = s.pingEach(ctx, charges)
	} else {
		err = s.decide(ctx, wire.Take, [][]window.Charge{charges})[0].Err
	}
	if err == nil && s.noThrottle.Load() {
		err = s.pingNative(ctx)
	}
	if err == nil {
		s.doubts.Clear()
	}
	return err
}

// pingEach spends on counters one by one in a Cluster, where nothing of it has to be given
// back.
func (s *Store) pingEach(ctx context.Context, charges []window.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	calls := make([]*wire.Call, len(charges))
	for i := range charges {
		calls[i] = s.newCall(s.namings[:1], wire.Take, charges[i:i+1])
	}
	s.run(ctx, calls)
	var results [1]window.Result
	for _, c := range calls {
		if c.Answer(results[:]); results[0].Err != nil {
			return s.words.Fail(ctx, results[0].Err)
		}
	}
	return nil
}

// doubt makes Ping try the kind of charge that a request failed with.
func (s *Store) doubt(charges []window.Charge) {
	for i := range charges {
		c := &charges[i]
		facts := window.FactsOf(c.Algorithm)
		if facts.Held { // a ping would hold a unit, and slices take the same commands
			facts = window.FactsOf(window.Slices{})
		}
		probe, node := facts.Probe, engineStore{s}.Parts(charges[i:i+1], nil)[0]
		s.doubts.LoadOrStore(kind{probe, c.Pack > 0, node}, pingCharge(probe, c.Pack))
	}
}

// kind tells counters apart that take other commands, or are on another node of a Cluster.
type kind struct {
	algorithm window.Algorithm
	packed    bool
	node      string
}

func pingCharge(algorithm window.Algorithm, pack int64) window.Charge {
	return window.Charge{
		Key:       "ping",
		Policies:  []window.Policy{{Limit: 1, Window: time.Millisecond}},
		Cost:      1,
		Algorithm: algorithm,
		Pack:      pack,
	}
}

// pingTries is how many keys are tried to find one that lives on a node: with one slot of
// 16,384, 99.9 % of nodes are found.
const pingTries = 120_000

// manyHashes is a number of packed counters that has hashes on every node.
const manyHashes = 1 << 40

// PingPart implements engine.Parted. It spends on counters that lived on the node when it
// failed: once another node holds their slots, that one answers, and the node is not needed.
func (s engineStore) PingPart(ctx context.Context, node string) error {
	var charges []window.Charge
	var kinds []any
	s.doubts.Range(func(k, c any) bool {
		if k.(kind).node == node {
			kinds = append(kinds, k)
			charges = s.appendPing(ctx, charges, c.(window.Charge), node)
		}
		return true
	})
	if len(charges) == 0 {
		charges = s.appendPing(ctx, charges, pingCharge(window.Zset{}, 0), node)
	}
	if s.noThrottle.Load() {
		charges = s.appendPing(ctx, charges, pingNativeCharge, node)
	}
	if err := s.pingEach(ctx, charges); err != nil {
		return err
	}
	for _, k := range kinds {
		s.doubts.Delete(k)
	}
	s.pingKeys.Range(func(k, _ any) bool {
		if k.(kind).node == node {
			s.pingKeys.Delete(k)
		}
		return true
	})
	return nil
}

// appendPing appends a charge like c with a key that lives on a node, if there is one. It is
// the same key until the node has answered.
func (s *Store) appendPing(ctx context.Context, charges []window.Charge, c window.Charge, node string) []window.Charge {
	k := kind{c.Algorithm, c.Pack > 0, node}
	if c.Pack > 0 {
		c.Pack = manyHashes
	}
	if key, ok := s.pingKeys.Load(k); ok {
		c.Key = key.(string)
		return append(charges, c)
	}
	for n := range pingTries {
		c.Key = "ping" + strconv.Itoa(n)
		if s.home(ctx, &s.namings[0], &c) == node {
			s.pingKeys.Store(k, c.Key)
			return append(charges, c)
		}
	}
	return charges
}

// pingNativeCharge looks at what CL.THROTTLE counts.
var pingNativeCharge = window.Charge{
	Key:       "ping",
	Policies:  []window.Policy{{Limit: 1, Window: time.Second}},
	Algorithm: window.GCRA{Native: window.NativeOn},
}

// pingNative reports whether a request that insists on CL.THROTTLE would be
// decided.
func (s *Store) pingNative(ctx context.Context) error {
	err := s.decide(ctx, wire.Take, [][]window.Charge{{pingNativeCharge}})[0].Err
	if err == nil {
		s.noThrottle.Store(false)
	}
	return err
}

// instanceLife is how long a process counts that does not say that it is there.
const instanceLife = 15 * time.Second

// Register implements engine.Instancer. Stores of one prefix on one database count as
// those that share it.
func (s engineStore) Register(ctx context.Context) (int64, error) {
	n, err := s.registry(ctx, instanceLife, "").Int64()
	return n, s.words.Fail(ctx, err)
}

// Leave implements engine.Instancer.
func (s engineStore) Leave(ctx context.Context) error {
	return s.words.Fail(ctx, s.registry(ctx, 0, "").Err())
}

// Instances implements engine.InstanceLister.
func (s engineStore) Instances(ctx context.Context) ([]engine.Instance, error) {
	reply, err := s.registry(ctx, instanceLife, "list").Slice()
	var all []engine.Instance
	for i := 1; i < len(reply); i += 2 {
		name, _ := reply[i-1].(string)
		silent, _ := reply[i].(int64)
		all = append(all, engine.Instance{Name: name, Own: name == s.writer.Name, Silent: time.Duration(silent) * time.Millisecond})
	}
	return all, s.words.Fail(ctx, err)
}

// registry runs the script that knows the processes, with the name of this one.
func (s *Store) registry(ctx context.Context, life time.Duration, mode string) *goredis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var now any = ""
	if s.now != nil {
		now = s.now()
	}
	key := s.namings[0].KeyBeside("instances")
	return s.client.EvalSha(ctx, scripts.Instances, []string{key}, now, s.writer.Name, life.Milliseconds(), mode)
}
