package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ParseURL reads the options that are in a URL, written as for go-redis:
//
//	redis://<user>:<password>@<host>:<port>/<db>          rediss:// for TLS
//	redis://<host>:<port>?addr=<host>:<port>&addr=...     a Cluster
//	redis://<sentinel>:<port>/<db>?master_name=<name>     Sentinel; user and
//	  password are those of the Sentinels, ?username=...&password=... the server's
//	unix://<user>:<password>@<path>?db=<db>               a socket
//
// The query may also hold ?pool_size=<n>, ?db=<db> instead of the path and, with
// rediss://, ?skip_verify=true. Any other option is ErrOption. Errors do not repeat
// the URL, which may hold a password: no more of it than the names of such options.
func ParseURL(s string) (Options, error) {
	scheme, _, _ := strings.Cut(s, "://")
	switch strings.ToLower(scheme) {
	case "redis", "rediss", "unix":
	default:
		return Options{}, errScheme
	}
	o, err := parseURL(s)
	if at := strings.LastIndexByte(s, '@'); err != nil && at >= 0 {
		// Everything before the @ may belong to the password, however the parser split it.
		if _, err = parseURL(scheme + "://" + s[at+1:]); err == nil {
			err = errURL
		}
	}
	if errors.Is(err, ErrOption) && strings.Contains(s, "password=") {
		err = ErrOption // the name may be what follows an & in the password
	}
	return o, err
}

// ErrOption is an option in the query of a URL that has no field in Options. The
// error of ParseURL that wraps it says its name.
var ErrOption = errors.New("redis: unexpected option")

var (
	errScheme   = errors.New("a URL has to begin with redis://, rediss:// or unix://")
	errURL      = errors.New("not a valid URL: look at host and port, and percent-encode special characters in user name and password")
	errSocket   = errors.New("the socket path is missing: write unix:///<path>")
	errPort     = errors.New("port must be from 1 to 65535")
	errAddr     = errors.New("addr must be host:port")
	errDB       = errors.New("invalid database number: write /<db> as the path, or db=<db>")
	errPoolSize = errors.New("pool_size is not a whole number")
	errVerify   = errors.New("skip_verify must be true or false")
)

func parseURL(s string) (Options, error) {
	u, err := url.Parse(s)
	if err != nil || u.Fragment != "" {
		return Options{}, errURL
	}
	query, err := parseQuery(u)
	if err != nil {
		return Options{}, err
	}
	var o Options
	if o.Addresses, err = addresses(u, query["addr"]); err != nil {
		return Options{}, err
	}
	if query.Has("db") {
		if o.DB, err = strconv.Atoi(query.Get("db")); err != nil {
			return Options{}, errDB
		}
	}
	if query.Has("pool_size") {
		if o.PoolSize, err = strconv.Atoi(query.Get("pool_size")); err != nil {
			return Options{}, errPoolSize
		}
	}
	if u.Scheme == "rediss" {
		host, _, _ := net.SplitHostPort(o.Addresses[0])
		o.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	if query.Has("skip_verify") {
		if o.TLS.InsecureSkipVerify, err = strconv.ParseBool(query.Get("skip_verify")); err != nil {
			return Options{}, errVerify
		}
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	if o.Master = query.Get("master_name"); o.Master != "" {
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
		o.Username, o.Password = query.Get("username"), query.Get("password")
	} else {
		o.Cluster = query.Has("addr")
	}
	return o, nil
}

// parseQuery returns the options in the query, and the path as db. It refuses options that
// are unknown, empty, or duplicate; only addr may be repeated.
func parseQuery(u *url.URL) (url.Values, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	known := []string{"db", "pool_size"}
	if u.Scheme != "unix" {
		known = append(known, "addr", "master_name")
		if path := strings.Trim(u.Path, "/"); path != "" {
			query.Add("db", path)
		}
	}
	if u.Scheme == "rediss" {
		known = append(known, "skip_verify")
	}
	if query.Has("master_name") {
		known = append(known, "username", "password")
	}
	names := slices.Sorted(maps.Keys(query))
	if unknown := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(known, name) }); len(unknown) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrOption, strings.Join(unknown, ", "))
	}
	for _, name := range names {
		switch {
		case slices.Contains(query[name], ""):
			return nil, fmt.Errorf("%s is empty", name)
		case len(query[name]) > 1 && name != "addr":
			return nil, fmt.Errorf("duplicate option %s; keep one", name)
		}
	}
	return query, nil
}

// addresses returns the address of the URL, and those of its options addr.
func addresses(u *url.URL, others []string) ([]string, error) {
	if u.Scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return nil, errSocket
		}
		return []string{u.Path}, nil
	}
	host, port := cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "6379")
	all := append([]string{net.JoinHostPort(host, port)}, others...)
	for _, address := range all {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" {
			return nil, errAddr
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errPort
		}
	}
	return all, nil
}
