package stores

import (
	"cmp"
	"net/url"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// LongestWait returns the longest that a request waits for the store. The module is provisioned.
func (r *Redis) LongestWait() time.Duration { return cmp.Or(r.opened.Timeout, redis.DefaultTimeout) }

// ClearSecrets returns the options that hold a secret in clear text.
func (r *Redis) ClearSecrets() (options []string) {
	add := func(option string, values ...string) {
		for _, value := range values {
			if value != "" && !hasPlaceholder(value) {
				options = append(options, option)
				return
			}
		}
	}
	add("password", r.Password)
	add("sentinel_password", r.SentinelPassword)
	add("hash_keys", r.HashKeys...)
	if u, err := url.Parse(r.URL); err == nil {
		password, _ := u.User.Password()
		add("url", password)
	}
	return options
}
