package stores

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
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

// errOption refuses the option at the cursor, which a store does not have, and says what was probably meant.
func errOption(d *caddyfile.Dispenser, store string, options []string) error {
	cure := foreign.Meaning(store, d.Val())
	if store == foreign.Memory && slices.Contains(redisOptions, d.Val()) {
		cure = "store redis, which has it"
	}
	if cure != "" {
		return d.Errf("unrecognized subdirective %q of %s; write %s", d.Val(), store, cure)
	}
	return suggest.NoOption(d, " of "+store, options)
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
		meant := foreign.Meaning(foreign.Redis, name)
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
