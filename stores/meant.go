package stores

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/suggest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// redisOptions are the options of store redis in a Caddyfile.
var redisOptions = []string{
	"address", "master", "cluster", "username", "password", "sentinel_username", "sentinel_password", "db", "tls", "prefix", "hash_keys",
	"timeout", "pool_size",
}

// syntax says how options of stores are written.
var syntax = map[string]string{
	"memory":               "store memory, with max_keys <n> in a block",
	"max_keys":             "max_keys <n>",
	"address":              "address <host>:<port> ...",
	"master":               "master <name>",
	"cluster":              "cluster alone",
	"username":             "username <user>",
	"sentinel_username":    "sentinel_username <user>",
	"prefix":               "prefix <text>",
	"db":                   "db <n>",
	"pool_size":            "pool_size <n>",
	"timeout":              "timeout <duration>, such as timeout 100ms",
	"tls":                  "tls, with options in a block",
	"ca":                   "ca <file>",
	"cert":                 "cert <file>",
	"key":                  "key <file>",
	"server_name":          "server_name <name>",
	"insecure_skip_verify": "insecure_skip_verify alone",
}

// meantOptions are words of other clients of Redis, and what store redis has for them.
var meantOptions = map[string]string{
	"host": "address <host>:<port>", "hosts": "address <host>:<port> ...", "port": "address <host>:<port>", "addr": "address <host>:<port>",
	"addrs": "address <host>:<port> ...", "addresses": "address <host>:<port> ...", "server": "address <host>:<port>",
	"servers": "address <host>:<port> ...", "nodes": "address <host>:<port> ...", "endpoint": "address <host>:<port>",
	"sentinels": "address <host>:<port> ..., with master <name>", "url": "store redis <url>", "uri": "store redis <url>",
	"master_name": "master <name>", "sentinel_master": "master <name>", "mastername": "master <name>",
	"user": "username <user>", "pass": "password <secret>", "auth": "password <secret>", "database": "db <n>",
	"key_prefix": "prefix <text>", "dial_timeout": "timeout <duration>", "connect_timeout": "timeout <duration>",
	"read_timeout": "timeout <duration>", "write_timeout": "timeout <duration>", "max_connections": "pool_size <n>",
	"ssl": "tls", "tls_enabled": "tls", "tls_insecure": "tls { insecure_skip_verify }", "skip_verify": "tls { insecure_skip_verify }",
	"max_keys": "store memory, which has it",
}

// errOption refuses the option at the cursor, which there is not, and says what was
// probably meant.
func errOption(d *caddyfile.Dispenser, store string, options []string, meant map[string]string) error {
	if cure := meant[d.Val()]; cure != "" {
		return d.Errf("unrecognized subdirective %q of store %s; write %s", d.Val(), store, cure)
	}
	return suggest.NoOption(d, " of store "+store, options)
}

// meantByMemory is the same for store memory.
func meantByMemory() map[string]string {
	meant := map[string]string{"capacity": "max_keys <n>", "max_entries": "max_keys <n>", "max_size": "max_keys <n>"}
	for _, option := range redisOptions {
		meant[option] = "store redis, which has it"
	}
	return meant
}

// checkWords refuses options that follow addresses on their line.
func checkWords(addresses []string) error {
	for _, word := range addresses {
		if slices.Contains(redisOptions, word) {
			return fmt.Errorf("store redis: address: %s is an option; write it on a line of its own", word)
		}
	}
	return nil
}

// errURL says what is wrong with the URL, and what to write instead.
func errURL(err error) error {
	names, ok := strings.CutPrefix(err.Error(), redis.ErrOption.Error()+": ")
	if !errors.Is(err, redis.ErrOption) || !ok {
		return fmt.Errorf("url: %w; write redis://<host>:<port>/<db>, or use address", err)
	}
	for name := range strings.SplitSeq(names, ", ") {
		meant := meantOptions[name]
		if slices.Contains(redisOptions, name) {
			meant = name
		}
		if meant != "" {
			option, _, _ := strings.Cut(meant, " ")
			return fmt.Errorf("url: %w; write %s in the block of the store instead", err, option)
		}
	}
	return fmt.Errorf("url: %w; write redis://<host>:<port>/<db>, or use address", err)
}

// checkUsers refuses a user without a password, whom the client would leave out without
// a word. The name is not repeated: in a URL it is probably the password.
func checkUsers(o redis.Options, url string) error {
	switch {
	case o.Username != "" && !hasPlaceholder(o.Username) && o.Password == "" && o.Master == "" && strings.Contains(url, "@"):
		return errors.New("url: there is a user and no password; write redis://:<password>@<host> for a password alone, or redis://<user>:<password>@<host>")
	case o.Username != "" && !hasPlaceholder(o.Username) && o.Password == "":
		return errors.New("username: there is no password; add password <secret>, or take username out")
	case o.SentinelUsername != "" && o.SentinelPassword == "" && strings.Contains(url, "@"):
		return errors.New("url: there is a user and no password; write redis://:<password>@<host> for a password alone, or redis://<user>:<password>@<host>")
	case o.SentinelUsername != "" && o.SentinelPassword == "":
		return errors.New("sentinel_username: there is no password; add sentinel_password <secret>, or take sentinel_username out")
	}
	return nil
}
