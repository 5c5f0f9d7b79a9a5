package stores

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func init() {
	caddy.RegisterModule(Redis{})
}

// Redis keeps counts on a Redis or Valkey server that a fleet shares. It connects
// when the first request comes, not while the configuration loads.
//
// Placeholders in texts, such as `{env.REDIS_PASSWORD}` and `{file./run/secret}`,
// are replaced when the configuration loads; one without a value is an error.
type Redis struct {
	// Server, credentials and database in one:
	// `redis://<user>:<password>@<host>:<port>/<db>`, `rediss://` for TLS, or
	// `unix://<path>`. Options in its query: `db`, `pool_size`, `skip_verify` with
	// `rediss://`; `addr`, once for each further server, for a Cluster; `master_name`
	// for Sentinels, whose user and password the URL then names, and `username` and
	// `password` for the server. Not together with `address`; other options say the
	// same as the URL, or what it does not say. Default: no URL, the other options say all.
	URL string `json:"url,omitempty"`

	// The servers, as host:port: one, or the nodes of a Cluster or, with `master`,
	// the Sentinels. Default: localhost:6379.
	Address []string `json:"address,omitempty"`

	// The name of the master that the Sentinels at `address` watch. Default: no Sentinels.
	Master string `json:"master,omitempty"`

	// Whether the one `address` belongs to a Cluster. Several always do. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// The ACL user. Default: none.
	Username string `json:"username,omitempty"`

	// The password. Default: none.
	Password string `json:"password,omitempty"`

	// The ACL user at the Sentinels. Default: none.
	SentinelUsername string `json:"sentinel_username,omitempty"`

	// The password at the Sentinels. Default: none.
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// The number of the database; a Cluster has only 0. Default: 0.
	DB int `json:"db,omitempty"`

	// Encrypt connections. Default: no.
	TLS *TLS `json:"tls,omitempty"`

	// What the name of every key begins with. Default: sw.
	Prefix string `json:"prefix,omitempty"`

	// Keep the keys of zones out of Redis: the names of its keys hold their
	// HMAC-SHA256 under this secret instead, of 16 bytes or more. A second secret is
	// the former one: while both are there, each charge is made under both names, so
	// that instances count together that know only one of them. Give it until the
	// longest window after every instance knew the new one. Default: names hold the
	// keys unchanged.
	HashKeys []string `json:"hash_keys,omitempty"`

	// The longest that a request waits for a decision, also for a connection. A round trip
	// to the server has to fit into it. Connections take longer if need be, for the requests
	// that follow: a second, or four times the timeout if that is more. 1ms to 30s. Default: 100ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Connections to each server at most, up to 100000. Default: 10 per CPU, 5 in a
	// Cluster.
	PoolSize int `json:"pool_size,omitempty"`

	// File and line of options that hold placeholders or name files, for errors. The
	// Caddyfile adapter sets it. Default: none.
	WrittenAt map[string]string `json:"written_at,omitempty"`

	pooled *pooled
	opened redis.Options // what the store was made of
}

var clients = caddy.NewUsagePool()

// CaddyModule returns the Caddy module information.
func (Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.redis", New: func() caddy.Module { return new(Redis) }}
}

// Provision implements caddy.Provisioner. The module keeps placeholders, and not their
// values: the configuration can be read back.
func (r *Redis) Provision(caddy.Context) error {
	logClients()
	if err := r.check(); err != nil {
		return err
	}
	expanded, options, err := r.expandedOptions()
	if err != nil {
		return fmt.Errorf("store redis: %w", r.located(err))
	}
	options.Report = new(reports).add
	options.Few = tellFew
	options.Reclaimed = func(zone string, units int64) {
		metrics.ConcurrentReclaimedTotal.WithLabelValues(zone).Add(float64(units))
	}
	r.opened = options
	ownMasters.Store(options.Master, nil)
	if r.pooled, err = acquire(clients, expanded.fingerprint(), func() window.Store { return redis.New(options).Engine() }); err != nil {
		return fmt.Errorf("store redis: %w", err)
	}
	if options.TLS != nil {
		encrypted.Store(r.Store(), true)
	}
	return nil
}

// expandedOptions replaces the placeholders, and checks what comes out.
func (r *Redis) expandedOptions() (Redis, redis.Options, error) {
	expanded, err := r.expand()
	if err != nil {
		return expanded, redis.Options{}, err
	}
	if err := expanded.checkExpanded(r); err != nil {
		return expanded, redis.Options{}, err
	}
	options, err := expanded.options(r.TLS)
	if hasPlaceholder(r.URL) && err != nil && !errors.As(err, new(optionError)) {
		err = ofOption("url", err)
	}
	return expanded, options, err
}

// Cleanup implements caddy.CleanerUpper.
func (r *Redis) Cleanup() error { return r.pooled.release() }

// Store returns the store; see slidingwindow.StoreModule.
func (r *Redis) Store() window.Store { return r.pooled.store.Store }

// ShadowStore returns a store on the same servers; see slidingwindow.ShadowModule.
func (r *Redis) ShadowStore() window.Store { return redis.New(r.opened).Engine() }

// check reports what is wrong with the options as configured.
func (r *Redis) check() error {
	if err := r.checkEach(); err != nil {
		return err
	}
	if r.URL != "" && len(r.Address) > 0 {
		return errors.New("store redis: url and address cannot be combined; take out one")
	}
	if hasPlaceholder(r.URL) {
		return nil // Provision checks what comes out of it
	}
	if _, err := r.servers(); err != nil {
		return fmt.Errorf("store redis: %w", err)
	}
	return nil
}

// checkEach checks the options one by one.
func (r *Redis) checkEach() error {
	err := func() error {
		if r.URL != "" && !hasPlaceholder(r.URL) {
			if _, err := r.parseURL(); err != nil {
				return err
			}
		}
		for i, address := range r.Address {
			if slices.Contains(r.Address[:i], address) {
				return errors.New("address: a server is named twice, which would make a Cluster of it; take out one")
			}
			if hasPlaceholder(address) && !strings.Contains(address, "://") {
				continue
			}
			if err := checkAddress(address, address); err != nil {
				return err
			}
		}
		if err := checkNumbers(r.DB, r.PoolSize); err != nil {
			return err
		}
		switch {
		case r.Timeout < 0:
			return fmt.Errorf("timeout %s: must be greater than 0", time.Duration(r.Timeout))
		case r.Timeout > 0 && time.Duration(r.Timeout) < time.Millisecond:
			return fmt.Errorf("timeout %s: must be at least 1ms", time.Duration(r.Timeout))
		case time.Duration(r.Timeout) > longestTimeout:
			return errLong(time.Duration(r.Timeout))
		case strings.ContainsAny(r.Prefix, "{}") && !hasPlaceholder(r.Prefix):
			return fmt.Errorf("prefix %q: must not hold braces, which pick the slot in a Cluster", r.Prefix)
		}
		if err := checkHashKeys(r.HashKeys); err != nil {
			return err
		}
		return r.TLS.check()
	}()
	if err != nil {
		return fmt.Errorf("store redis: %w", err)
	}
	return nil
}

// checkExpanded reports what came out of placeholders and is not right. It repeats
// what was written, not what came out, which may be a secret in the wrong place.
func (r *Redis) checkExpanded(written *Redis) error {
	if hasPlaceholder(written.URL) {
		if _, err := r.parseURL(); errors.Is(err, redis.ErrOption) {
			return ofOption("url", errURL(redis.ErrOption)) // without its name
		}
	}
	for i, address := range r.Address {
		if err := checkAddress(address, written.Address[i]); err != nil {
			return ofOption("address", err)
		}
	}
	if strings.ContainsAny(r.Prefix, "{}") {
		return ofOption("prefix", fmt.Errorf("prefix %q: must not come out with braces, which pick the slot in a Cluster", written.Prefix))
	}
	return ofOption("hash_keys", checkExpandedHashKeys(r.HashKeys))
}

// parseURL returns what the URL says.
func (r *Redis) parseURL() (redis.Options, error) {
	o, err := redis.ParseURL(r.URL)
	if err != nil {
		return o, errURL(err)
	}
	return o, checkNumbers(o.DB, o.PoolSize)
}

// mostConnections is more than a server takes, and far below what makes go-redis panic.
const mostConnections = 100_000

// longestTimeout is far above what a request can wait for, and below what is written for ms by mistake.
const longestTimeout = 30 * time.Second

func errLong(timeout time.Duration) error {
	err := fmt.Errorf("timeout %s: must be at most %s, as each request would wait for it while Redis is away", timeout, longestTimeout)
	if timeout%time.Minute == 0 && timeout <= 1000*time.Minute {
		return fmt.Errorf("%w; write %dms for milliseconds", err, timeout/time.Minute)
	}
	return err
}

func checkNumbers(db, poolSize int) error {
	switch {
	case db < 0:
		return fmt.Errorf("db %d: must not be negative", db)
	case poolSize < 0 || poolSize > mostConnections:
		return errPoolSize(poolSize)
	}
	return nil
}

func errPoolSize(n int) error {
	return fmt.Errorf("pool_size %d: must be from 1 to %d", n, mostConnections)
}

// checkAddress checks an address; the error repeats it as written, unless that may
// hold a password.
func checkAddress(address, written string) error {
	name := fmt.Sprintf("address %q", written)
	if isURL(written) {
		name = "address"
	}
	if strings.HasPrefix(address, "/") {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || isURL(address) {
		return fmt.Errorf("%s: must be host:port; use redis <url> for a URL", name)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%s: port must be from 1 to 65535", name)
	}
	return nil
}

// isURL reports whether an address is a URL, or a part of one with a password.
func isURL(address string) bool {
	return strings.Contains(address, "://") || strings.Contains(address, "@")
}

func hasPlaceholder(s string) bool { return strings.Contains(s, "{") && strings.Contains(s, "}") }

// expand returns a copy with its placeholders replaced.
func (r *Redis) expand() (Redis, error) {
	e := *r
	e.pooled, e.WrittenAt, e.opened = nil, nil, redis.Options{}
	e.Address = slices.Clone(r.Address)
	e.HashKeys = slices.Clone(r.HashKeys)
	if r.TLS != nil {
		tls := *r.TLS
		e.TLS = &tls
	}
	repl := caddy.NewReplacer()
	replace := func(option, name string, field *string, expand func(*caddy.Replacer, string) (string, error)) error {
		value, err := expand(repl, *field)
		if err != nil {
			return ofOption(option, fmt.Errorf("%s: %w", name, err))
		}
		*field = value
		return nil
	}
	for name, field := range map[string]*string{
		"master": &e.Master, "username": &e.Username, "sentinel_username": &e.SentinelUsername, "prefix": &e.Prefix,
	} {
		if err := replace(name, name, field, expandText); err != nil {
			return e, err
		}
	}
	for name, field := range map[string]*string{"url": &e.URL, "password": &e.Password, "sentinel_password": &e.SentinelPassword} {
		if err := replace(name, name, field, expandSecret); err != nil {
			return e, err
		}
	}
	for i := range e.Address {
		if err := replace("address", fmt.Sprintf("address %d", i+1), &e.Address[i], expandText); err != nil {
			return e, err
		}
	}
	for i := range e.HashKeys {
		if err := replace("hash_keys", fmt.Sprintf("hash_keys %d", i+1), &e.HashKeys[i], expandSecret); err != nil {
			return e, err
		}
	}
	for name, field := range e.TLS.fields() {
		if err := replace(name, name, field, expandText); err != nil {
			return e, err
		}
	}
	return e, nil
}

// servers returns which servers there are and how to log in: what the URL says, and
// the other options beside it.
func (r *Redis) servers() (redis.Options, error) {
	o := redis.Options{Addresses: r.Address}
	if r.URL != "" {
		var err error
		if o, err = r.parseURL(); err != nil {
			return o, err
		}
	}
	o.Cluster = o.Cluster || r.Cluster
	if err := cmp.Or(
		add("master", &o.Master, r.Master),
		add("username", &o.Username, r.Username),
		add("password", &o.Password, r.Password),
		add("sentinel_username", &o.SentinelUsername, r.SentinelUsername),
		add("sentinel_password", &o.SentinelPassword, r.SentinelPassword),
		add("db", &o.DB, r.DB),
		add("pool_size", &o.PoolSize, r.PoolSize),
	); err != nil {
		return o, err
	}
	for _, text := range append([]string{o.Master, r.Prefix}, o.Addresses...) {
		if !utf8.ValidString(text) {
			return o, errors.New("address, master and prefix must be text in UTF-8")
		}
	}
	switch cluster := o.Cluster || len(o.Addresses) > 1; {
	case o.Master != "" && o.Cluster:
		return o, errors.New("master and cluster cannot be combined; take out one")
	case o.Master != "" && len(o.Addresses) == 0:
		return o, errors.New("master: address must name the Sentinels")
	case r.TLS != nil && !r.TLS.InsecureSkipVerify && o.TLS != nil && o.TLS.InsecureSkipVerify:
		return o, errors.New("tls: the URL says skip_verify; write insecure_skip_verify in its place, or take it out")
	case o.Master == "" && o.SentinelUsername+o.SentinelPassword != "":
		return o, errors.New("sentinel_username and sentinel_password are for Sentinels, so master <name> is required")
	case o.Master == "" && cluster && o.DB != 0:
		return o, fmt.Errorf("db %d: a Cluster has only database 0", o.DB)
	}
	return o, checkUsers(o, r.URL)
}

// options returns the expanded options as the store takes them. Errors name files as
// they were written.
func (r *Redis) options(written *TLS) (redis.Options, error) {
	o, err := r.servers()
	if err != nil {
		return o, err
	}
	tls, err := r.TLS.config(written)
	if err != nil {
		return o, err
	}
	if tls != nil {
		o.TLS = tls
	}
	o.Prefix = r.Prefix
	if len(r.HashKeys) > 0 {
		o.KeySecret = r.HashKeys[0]
	}
	if len(r.HashKeys) > 1 {
		o.FormerKeySecret = r.HashKeys[1]
	}
	o.Timeout = time.Duration(r.Timeout)
	return o, nil
}

// add sets a field to what an option says, if it says something. The URL may have
// set it, but not to something else.
func add[T comparable](option string, field *T, value T) error {
	var unset T
	switch {
	case value == unset:
		return nil
	case *field != unset && *field != value:
		return errTwice(option)
	}
	*field = value
	return nil
}

func errTwice(option string) error {
	return fmt.Errorf("%s differs between the URL and the option; take out one", option)
}

// fingerprint identifies the connections that the expanded options make. Files
// count with their content, so that a reload takes up a new certificate.
func (r *Redis) fingerprint() [sha256.Size]byte {
	b, _ := json.Marshal(r) //nolint:gosec // texts and numbers only: it cannot fail, and goes nowhere
	// Secrets may hold bytes that are no text, which JSON does not tell apart.
	b = fmt.Appendf(b, "%q%q", []string{r.URL, r.Username, r.Password, r.SentinelUsername, r.SentinelPassword}, r.HashKeys)
	return sha256.Sum256(append(b, r.TLS.contents()...))
}

// reports writes what a store has to report to Caddy's log: a line a second at most,
// for while servers are away every request may have something.
type reports struct {
	mu      sync.Mutex // guards all
	written time.Time  // when the last line was
	skipped int        // reports since then
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.written) < time.Second {
		r.skipped++
		return
	}
	caddy.Log().Named("http.sliding_window.stores.redis").Warn("a counter could not be corrected; it is right again after one window",
		zap.Error(err), zap.Int("others", r.skipped))
	r.written, r.skipped = time.Now(), 0
}

// tellFew writes to Caddy's log that no more connections can be made to a server that answers.
func tellFew(open int, err error) {
	caddy.Log().Named("http.sliding_window.stores.redis").Warn("no more connections to the server can be made; requests share those that are open",
		zap.Int("connections", open), zap.Error(redis.Shown(err)))
}

// Interface guards.
var (
	_ caddy.Provisioner  = (*Redis)(nil)
	_ caddy.CleanerUpper = (*Redis)(nil)
)
