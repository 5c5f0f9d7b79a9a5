package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/client"
)

// NewWithClient returns a store on the caller's client, such as one with tokens in place of a
// password, with hooks or with a pool that others share. It takes what goredis.NewClient,
// NewFailoverClient, NewClusterClient and NewFailoverClusterClient return. Close leaves the client
// open.
//
// Prefix, KeySecret, FormerKeySecret, Timeout, Report and Now are the Options that the store uses.
// Master names the store of a Sentinel. NewWithClient returns an error if any other option is set:
// the client has it.
//
// A store of New makes its own connections, and does more with them:
//   - It checks that replies are no longer than what was asked for, before it reads them.
//   - It logs in before a request has the connection, within a time that is not that of the request.
//   - It keeps spare connections to a server that is far away, and shares those that are open where no
//     more can be made.
//   - It drops connections to a server that became a replica, or is loading.
//   - It reads CLUSTER SLOTS also of nodes that do not know their own host.
//
// The client needs ContextTimeoutEnabled, so that calls end with Timeout. That of a Cluster should have
// DisableRoutingPolicies, without which its user needs +command. A hook that loads scripts stays on the
// client; it leaves calls of others alone.
func NewWithClient(given goredis.UniversalClient, o Options) (*Store, error) {
	if o.hasConnection() {
		return nil, errors.New("addresses, cluster, users, passwords, db, tls, pool size and few cannot be combined with a client; set them on the client")
	}
	o = o.withDefaults()
	loader, inTime := &client.Loader{Own: true}, false
	switch c := given.(type) {
	case *goredis.Client:
		o.Addresses, o.DB, inTime = []string{c.Options().Addr}, c.Options().DB, c.Options().ContextTimeoutEnabled
		loader.Each = only(c)
	case *goredis.ClusterClient:
		o.Addresses, o.Cluster, o.Master, inTime = c.Options().Addrs, true, "", c.Options().ContextTimeoutEnabled
		loader.Each = c.ForEachMaster
	case *goredis.Ring:
		return nil, errors.New("a Ring moves keys to other servers while one is away, and their counters begin anew; use a Cluster")
	default:
		return nil, fmt.Errorf("%T is not a client of package go-redis", given)
	}
	if !inTime {
		return nil, errors.New("calls of the client go on after their timeout; set ContextTimeoutEnabled")
	}
	s := newStore(given, o)
	s.given = true
	loader.Background, loader.Patience = s.background, s.patience
	given.AddHook(loader)
	if c, ok := given.(*goredis.ClusterClient); ok {
		c.OnNewNode(func(*goredis.Client) { s.metNode() })
	}
	return s, nil
}

// hasConnection reports whether the options say how to connect.
func (o Options) hasConnection() bool {
	return len(o.Addresses) > 0 || o.Cluster || o.Username != "" || o.Password != "" || o.SentinelUsername != "" ||
		o.SentinelPassword != "" || o.DB != 0 || o.TLS != nil || o.PoolSize != 0 || o.Few != nil
}

// only returns the Each of a Loader of one server.
func only(server *goredis.Client) func(context.Context, func(context.Context, *goredis.Client) error) error {
	return func(ctx context.Context, load func(context.Context, *goredis.Client) error) error {
		return load(ctx, server)
	}
}
