package redis

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/respguard"
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
	// are then no leases, and what is given back stays spent under the former
	// name. Not without KeySecret, and not the same.
	FormerKeySecret string
	// The longest that one call waits, also for a connection; the context may
	// shorten it. Connections take longer if need be, for the calls that follow: four times
	// as long, or a second if that is more. Default: DefaultTimeout.
	Timeout time.Duration
	// Connections to each server at most. Default: 10 per CPU, 5 in a Cluster.
	PoolSize int
	// Report is called with units that could not be taken back, or booked for a lease within its
	// window, and of a lease that may stay booked as its reply was lost, each time: no
	// request fails of it. It must not wait. Nil: not called.
	Report func(error)
	// Few is called for a server to which no more connections can be made, while those that are open
	// work: of how many are open, and why, once a minute at most. It must not wait. Nil: not called.
	Few func(open int, err error)
	// Reclaimed is called with units of window.Concurrent that are free as the process that held them was silent
	// for its lease. It must not wait. Nil: not called.
	Reclaimed func(zone string, units int64)
	// Tests set the time, in Unix milliseconds. Nil: the server's clock.
	Now func() int64
}

// withDefaults returns options in which what is left out has its default.
func (o Options) withDefaults() Options {
	if len(o.Addresses) == 0 {
		o.Addresses = []string{DefaultAddress}
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	if o.Few == nil {
		o.Few = func(int, error) {}
	}
	return o
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
	// Commands that the client sends on its own have no context.
	patience := max(o.Timeout, time.Second)
	dialing := o.connecting()
	if o.Master != "" {
		dialing *= 2 // a Sentinel is asked first, and connected to
	}
	return onePool(&goredis.UniversalOptions{
		Addrs:            o.Addresses,
		MasterName:       o.Master,
		IsClusterMode:    o.isCluster(),
		SentinelUsername: o.SentinelUsername,
		SentinelPassword: o.SentinelPassword,
		TLSConfig:        o.TLS,
		PoolSize:         o.PoolSize,

		// A retry could charge twice; see package wire for Cluster.
		MaxRetries:    -1,
		DialerRetries: 1,
		// The context of a call is what limits it. A connection that takes longer
		// is made all the same, for the calls that follow. See client.Handshake for user, password
		// and database.
		ContextTimeoutEnabled: true,
		Dialer:                respguard.Dialer(o.connecting(), o.TLS, o.Master != "", o.Addresses[0]),
		DialTimeout:           dialing,
		ReadTimeout:           patience,
		WriteTimeout:          patience,
		PoolTimeout:           patience,
		// Nothing that a plain server has to refuse, and no look-up while a
		// configuration loads.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// onePool makes PoolSize all that the server gets, and returns o. Since v9.23, go-redis has a second pool for
// pipelines, and a field for its size.
func onePool(o *goredis.UniversalOptions) *goredis.UniversalOptions {
	if size := reflect.ValueOf(o).Elem().FieldByName("PipelinePoolSize"); size.IsValid() {
		size.SetInt(-1)
	}
	return o
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

// name returns how operators see the store. It holds no secret, nor what one could be guessed by: stores that differ
// only in KeySecret have one name, and Store.Fingerprints tells them apart.
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

// connecting returns how long a connection may take to be made, with all that servers are
// told first. Requests do not wait for it: their timeout ends their wait, and the connection
// is there for those that follow. A connection takes four round trips at most, one for TCP,
// two for TLS and one for the greeting, and a call that fits into timeout takes one.
func (o Options) connecting() time.Duration { return max(4*o.Timeout, time.Second) }
