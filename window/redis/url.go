package redis

import (
	"net/url"

	goredis "github.com/redis/go-redis/v9"
)

// ParseURL reads the options that are in a URL as go-redis takes it:
//
//	redis://<user>:<password>@<host>:<port>/<db>          rediss:// for TLS
//	redis://<host>:<port>?addr=<host>:<port>&addr=...     a Cluster
//	redis://<sentinel>:<port>/<db>?master_name=<name>     Sentinel
//	unix://<user>:<password>@<path>?db=<db>               a socket
//
// Of the options in the query, those count that have a field in Options. Errors
// do not repeat the URL, which may hold a password.
func ParseURL(s string) (Options, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Options{}, err.(*url.Error).Err
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		f, err := goredis.ParseFailoverURL(s)
		if err != nil {
			return Options{}, err
		}
		return Options{
			Addresses: f.SentinelAddrs, Master: f.MasterName, Username: f.Username, Password: f.Password,
			SentinelUsername: f.SentinelUsername, SentinelPassword: f.SentinelPassword,
			DB: f.DB, TLS: f.TLSConfig, PoolSize: f.PoolSize,
		}, nil
	case query.Has("addr"):
		c, err := goredis.ParseClusterURL(s)
		if err != nil {
			return Options{}, err
		}
		return Options{
			Addresses: c.Addrs, Cluster: true, Username: c.Username, Password: c.Password,
			TLS: c.TLSConfig, PoolSize: c.PoolSize,
		}, nil
	default:
		o, err := goredis.ParseURL(s)
		if err != nil {
			return Options{}, err
		}
		return Options{
			Addresses: []string{o.Addr}, Username: o.Username, Password: o.Password,
			DB: o.DB, TLS: o.TLSConfig, PoolSize: o.PoolSize,
		}, nil
	}
}
