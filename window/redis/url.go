package redis

import (
	"errors"
	"net/url"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// ParseURL reads the options that are in a URL as go-redis takes it:
//
//	redis://<user>:<password>@<host>:<port>/<db>          rediss:// for TLS
//	redis://<host>:<port>?addr=<host>:<port>&addr=...     a Cluster
//	redis://<sentinel>:<port>/<db>?master_name=<name>     Sentinel; user and
//	  password are those of the Sentinels, ?username=...&password=... the server's
//	unix://<user>:<password>@<path>?db=<db>               a socket
//
// Of the options in the query, those count that have a field in Options. Errors
// do not repeat the URL, which may hold a password.
func ParseURL(s string) (Options, error) {
	scheme, _, _ := strings.Cut(s, "://")
	switch strings.ToLower(scheme) {
	case "redis", "rediss", "unix":
	default:
		return Options{}, errScheme
	}
	o, err := parseURL(s)
	if at := strings.LastIndexByte(s, '@'); err != nil && at >= 0 {
		// All before the @ may be part of a password, whatever it was taken for.
		if _, err = parseURL(scheme + "://" + s[at+1:]); err == nil {
			err = errURL
		}
	}
	return o, err
}

var (
	errScheme = errors.New("a URL has to begin with redis://, rediss:// or unix://")
	errURL    = errors.New("not a valid URL: look at host and port, and percent-encode special characters in user name and password")
)

func parseURL(s string) (Options, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Options{}, errURL
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
