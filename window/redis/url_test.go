package redis_test

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func TestParseURL(t *testing.T) {
	for url, want := range map[string]redis.Options{
		"redis://localhost":                 {Addresses: []string{"localhost:6379"}},
		"redis://localhost:7000/3":          {Addresses: []string{"localhost:7000"}, DB: 3},
		"redis://u:p%40%2F@h:1/0":           {Addresses: []string{"h:1"}, Username: "u", Password: "p@/"},
		"redis://:p@h?db=2":                 {Addresses: []string{"h:6379"}, Password: "p", DB: 2},
		"redis://[::1]:6380":                {Addresses: []string{"[::1]:6380"}},
		"redis://h?pool_size=7":             {Addresses: []string{"h:6379"}, PoolSize: 7},
		"redis://":                          {Addresses: []string{"localhost:6379"}},
		"redis://h:65535/1/":                {Addresses: []string{"h:65535"}, DB: 1},
		"redis://a:1/3?addr=b:2":            {Addresses: []string{"a:1", "b:2"}, Cluster: true, DB: 3},
		"unix:///run/redis.sock":            {Addresses: []string{"/run/redis.sock"}},
		"unix://u:p@/run/redis.sock?db=4":   {Addresses: []string{"/run/redis.sock"}, Username: "u", Password: "p", DB: 4},
		"redis://u:p@a:1?addr=b:2&addr=c:3": {Addresses: []string{"a:1", "b:2", "c:3"}, Cluster: true, Username: "u", Password: "p"},
		"redis://s:26379/1?master_name=m":   {Addresses: []string{"s:26379"}, Master: "m", DB: 1},
		"redis://s?master_name=m&db=2":      {Addresses: []string{"s:6379"}, Master: "m", DB: 2},
		"redis://su:sp@s?master_name=m&addr=t:1&username=u&password=p": {
			Addresses: []string{"s:6379", "t:1"}, Master: "m",
			Username: "u", Password: "p", SentinelUsername: "su", SentinelPassword: "sp",
		},
	} {
		if got, err := redis.ParseURL(url); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseURL(%q) = %+v, %v, want %+v", url, got, err, want)
		}
	}
	for _, url := range []string{"rediss://h", "rediss://a?addr=b:1", "rediss://s?master_name=m"} {
		if got, err := redis.ParseURL(url); err != nil || got.TLS == nil || got.TLS.MinVersion != tls.VersionTLS12 {
			t.Errorf("ParseURL(%q) = %+v, %v, want TLS 1.2 at least", url, got, err)
		}
	}
	if got, err := redis.ParseURL("rediss://h:1?skip_verify=true"); err != nil || got.TLS.ServerName != "h" || !got.TLS.InsecureSkipVerify {
		t.Errorf("ParseURL with skip_verify = %+v, %v", got, err)
	}
}

func TestParseURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"":                                   "redis://",
		"localhost:6379":                     "redis://",
		"user:secret@localhost":              "redis://",
		"http://u:secret@h":                  "redis://",
		"redis://h/x":                        "database number",
		"redis://u:secret@h/x":               "database number",
		"redis://h/1/2":                      "path",
		"redis://h?db=x":                     "database number",
		"redis://h?colour=red":               "colour",
		"redis://u:secret@h?colour=red":      "colour",
		"redis://u:secret@h?master=m":        "master",
		"redis://u:secret@h?addr=b":          "addr",
		"redis://u:sec#ret@h":                "percent-encode",
		"redis://u:secret/secret@h":          "percent-encode",
		"redis://:12/secret@h":               "percent-encode",
		"redis://u:12/secret?secret@h":       "percent-encode",
		"redis://u:secret%zz@h":              "percent-encode",
		"redis://u:secret secret@h:6379":     "percent-encode",
		"redis://u:secret":                   "percent-encode",
		"redis://u:secret@h:port":            "host and port",
		"unix://":                            "socket path",
		"unix://run/redis.sock":              "socket path",
		"unix:///run/redis.sock?addr=b:1":    "redis: unexpected option: addr",
		"redis://h:0":                        "port must be from 1 to 65535",
		"redis://h:70000":                    "port must be from 1 to 65535",
		"redis://secret:70000":               "port must be from 1 to 65535",
		"redis://user:707070":                "port must be from 1 to 65535",
		"redis://h?addr=b:0":                 "port must be from 1 to 65535",
		"redis://h?addr=b:http":              "port must be from 1 to 65535",
		"redis://h?addr=:1":                  "addr must be host:port",
		"redis://h?pool_size=secret":         "pool_size is not a whole number",
		"rediss://h?skip_verify=secret":      "skip_verify must be true or false",
		"redis://h?skip_verify=true":         "redis: unexpected option: skip_verify",
		"redis://h?read_timeout=1s":          "redis: unexpected option: read_timeout",
		"redis://h?protocol=2&max_retries=1": "redis: unexpected option: max_retries, protocol",
		"redis://h?username=u":               "redis: unexpected option: username",
		"redis://h/secret":                   "database number",
		"redis://h/1?db=2":                   "duplicate option db; keep one",
		"redis://h?db=1&db=1":                "duplicate option db; keep one",
		"redis://h?db=":                      "db is empty",
		"redis://h?master_name=":             "master_name is empty",
		"redis://h?db=1;x":                   "percent-encode",
		"redis://h/1#x":                      "percent-encode",
		// What follows an & or an @ may be the rest of a password.
		"redis://h?master_name=m&password=x&secret":     "redis: unexpected option",
		"redis://h?master_name=m&password=x@h&secret":   "percent-encode",
		"redis://h?master_name=m&password=x@h?s&secret": "redis: unexpected option",
	} {
		_, err := redis.ParseURL(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseURL(%q) = %v, want %q", url, err, want)
		} else if strings.Contains(err.Error(), "sec") {
			t.Errorf("ParseURL(%q) = %v, which holds the password", url, err)
		}
	}
}

func TestString(t *testing.T) {
	secret := redis.Options{Username: "secret", Password: "secret", SentinelUsername: "secret", SentinelPassword: "secret"}
	for want, change := range map[string]func(*redis.Options){
		"redis localhost:6379/0 sw":            func(*redis.Options) {},
		"redis h:1/3 p":                        func(o *redis.Options) { o.Addresses, o.DB, o.Prefix = []string{"h:1"}, 3, "p" },
		"redis cluster h:1/0 sw":               func(o *redis.Options) { o.Addresses, o.Cluster = []string{"h:1"}, true },
		"redis cluster h:1,h:2/0 sw":           func(o *redis.Options) { o.Addresses = []string{"h:1", "h:2"} },
		"redis sentinel m localhost:6379/0 sw": func(o *redis.Options) { o.Master = "m" },
		"redis sentinel m h:1,h:2,h:3/1 prefix": func(o *redis.Options) {
			o.Master, o.Addresses, o.DB, o.Prefix = "m", []string{"h:1", "h:2", "h:3"}, 1, "prefix"
		},
	} {
		o := secret
		change(&o)
		s := redis.New(o)
		if got := s.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
		_ = s.Close()
	}
}
