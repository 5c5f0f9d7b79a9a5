package stores

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
)

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	redis [<url>] {
//		address           <host:port...>
//		master            <name>
//		cluster
//		username          <user>
//		password          <secret>
//		sentinel_username <user>
//		sentinel_password <secret>
//		db                <n>
//		tls {
//			ca          <file>
//			cert        <file>
//			key         <file>
//			server_name <name>
//			insecure_skip_verify
//		}
//		prefix            <text>
//		hash_keys         <secret> [<former secret>]
//		timeout           <duration>
//		pool_size         <n>
//	}
func (r *Redis) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume module name
	if d.NextArg() {
		r.URL = d.Val()
		if d.NextArg() {
			return d.Err("store redis: write redis [<url>]") // without what may be a part of it
		}
		if r.URL == "" {
			return errEmpty(d, "url")
		}
		if err := r.checkEach(); err != nil {
			return d.WrapErr(err)
		}
		r.notePlaceholders(d, "url", r.URL)
	}
	texts := map[string]*string{
		"master": &r.Master, "username": &r.Username, "sentinel_username": &r.SentinelUsername, "prefix": &r.Prefix,
	}
	secrets := map[string]*string{"password": &r.Password, "sentinel_password": &r.SentinelPassword}
	numbers := map[string]*int{"db": &r.DB, "pool_size": &r.PoolSize}
	seen := make(suggest.Seen)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return err
		}
		option := d.Val()
		switch {
		case texts[option] != nil:
			if !d.AllArgs(texts[option]) {
				return suggest.ArgErrOf(d, syntax)
			}
			if *texts[option] == "" {
				return errEmpty(d, option)
			}
			r.notePlaceholders(d, option, *texts[option])
		case secrets[option] != nil:
			if !d.AllArgs(secrets[option]) {
				return d.Errf("store redis: write %s <secret>, in quotes if it holds spaces", option)
			}
			if *secrets[option] == "" {
				return errEmpty(d, option)
			}
			r.notePlaceholders(d, option, *secrets[option])
		case option == "hash_keys":
			if r.HashKeys = d.RemainingArgs(); len(r.HashKeys) == 0 || len(r.HashKeys) > 2 {
				return d.Err("store redis: write hash_keys <secret> [<former secret>]")
			}
			r.notePlaceholders(d, option, r.HashKeys...)
		case numbers[option] != nil:
			if err := number(d, option, numbers[option]); err != nil {
				return err
			}
			if option == "pool_size" && r.PoolSize == 0 {
				return d.Errf("store redis: %w", errPoolSize(0))
			}
		case option == "address":
			if r.Address = d.RemainingArgs(); len(r.Address) == 0 {
				return suggest.ArgErrOf(d, syntax)
			}
			if err := checkWords(r.Address); err != nil {
				return d.WrapErr(err)
			}
			r.notePlaceholders(d, option, r.Address...)
		case option == "cluster":
			if d.NextArg() {
				return suggest.ArgErrOf(d, syntax)
			}
			r.Cluster = true
		case option == "timeout":
			if err := r.unmarshalTimeout(d); err != nil {
				return err
			}
		case option == "tls":
			r.TLS = new(TLS)
			if err := r.unmarshalTLS(d); err != nil {
				return err
			}
		default:
			return errOption(d, foreign.Redis, redisOptions)
		}
		if err := r.checkEach(); err != nil {
			return d.WrapErr(err)
		}
	}
	if err := r.check(); err != nil {
		return d.WrapErr(err)
	}
	if seen["db"] && r.DB == 0 && r.URL != "" && !hasPlaceholder(r.URL) {
		// To check, and in JSON, 0 is no more than the default.
		if o, _ := r.parseURL(); o.DB != 0 {
			return d.Errf("store redis: %w", errTwice("db"))
		}
	}
	return nil
}

// errEmpty refuses an empty text, such as an environment variable that is not set.
func errEmpty(d *caddyfile.Dispenser, option string) error {
	return d.Errf("store redis: %s is empty; give it a value, or take it out", option)
}

func number(d *caddyfile.Dispenser, option string, target *int) error {
	var value string
	if !d.AllArgs(&value) {
		return suggest.ArgErrOf(d, syntax)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return d.Errf("store redis: %s %q is not a whole number", option, value)
	}
	*target = n
	return nil
}

func (r *Redis) unmarshalTimeout(d *caddyfile.Dispenser) error {
	var value string
	if !d.AllArgs(&value) {
		return suggest.ArgErrOf(d, syntax)
	}
	timeout, err := caddy.ParseDuration(value)
	if err != nil {
		if _, err := strconv.Atoi(value); err == nil {
			return d.Errf("store redis: timeout %s has no unit; write %[1]sms for milliseconds", value)
		}
		return d.Errf("store redis: timeout %q is not a duration, such as 100ms", value)
	}
	if timeout == 0 {
		return d.Errf("store redis: timeout %q: must be greater than 0", value)
	}
	r.Timeout = caddy.Duration(timeout)
	return nil
}

func (r *Redis) unmarshalTLS(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return suggest.ArgErrOf(d, syntax)
	}
	t := r.TLS
	files := map[string]*string{"ca": &t.CA, "cert": &t.Cert, "key": &t.Key, "server_name": &t.ServerName}
	seen := make(suggest.Seen)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return err
		}
		option := d.Val()
		switch {
		case files[option] != nil:
			if !d.AllArgs(files[option]) {
				return suggest.ArgErrOf(d, syntax)
			}
			if *files[option] == "" {
				return errEmpty(d, "tls: "+option)
			}
			if option == "server_name" {
				r.notePlaceholders(d, "tls server_name", t.ServerName)
			} else {
				r.note(d, "tls "+option)
			}
		case option == "insecure_skip_verify":
			if d.NextArg() {
				return suggest.ArgErrOf(d, syntax)
			}
			t.InsecureSkipVerify = true
		default:
			return suggest.NoOption(d, " of store redis tls", []string{"ca", "cert", "key", "server_name", "insecure_skip_verify"})
		}
	}
	return nil
}

// Interface guard.
var _ caddyfile.Unmarshaler = (*Redis)(nil)
