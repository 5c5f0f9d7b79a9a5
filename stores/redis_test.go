package stores

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func parseRedis(text string) (*Redis, error) {
	r := new(Redis)
	return r, r.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
}

func TestRedisCaddyfile(t *testing.T) {
	for _, c := range []struct {
		caddyfile string
		want      Redis
	}{
		{"redis", Redis{}},
		{"redis redis://u:p@localhost:6379/2", Redis{URL: "redis://u:p@localhost:6379/2"}},
		{"redis {env.REDIS_URL}", Redis{URL: "{env.REDIS_URL}"}},
		{"redis {\naddress /run/redis.sock\n}", Redis{Address: []string{"/run/redis.sock"}}},
		{"redis {\naddress {env.REDIS_HOST}:6379\n}", Redis{Address: []string{"{env.REDIS_HOST}:6379"}}},
		{"redis {\npassword \"a b\"\ndb 15\ntimeout 1s\npool_size 1\n}", Redis{Password: "a b", DB: 15, Timeout: caddy.Duration(time.Second), PoolSize: 1}},
		// Whatever the order, options are looked at together.
		{"redis {\ndb 2\naddress a:1 b:1\nmaster m\n}", Redis{Address: []string{"a:1", "b:1"}, Master: "m", DB: 2}},
		{"redis redis://localhost:26379 {\nmaster m\n}", Redis{URL: "redis://localhost:26379", Master: "m"}},
		{"redis redis://u:p@h:1/6?pool_size=100000 {\ndb 6\nusername u\npassword p\n}", Redis{URL: "redis://u:p@h:1/6?pool_size=100000", DB: 6, Username: "u", Password: "p"}},
		{"redis redis://h {\ndb 0\npool_size 100000\n}", Redis{URL: "redis://h", PoolSize: 100000}},
		{"redis {\ntls {\ncert c\nkey k\n}\n}", Redis{TLS: &TLS{Cert: "c", Key: "k"}}},
	} {
		got, err := parseRedis(c.caddyfile)
		got.WrittenAt = nil // see TestMissingIsLocated
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%q: got %+v, %v, want %+v", c.caddyfile, *got, err, c.want)
		}
	}
}

// The same mistakes, in both languages; JSON is empty where it cannot say them.
func TestRedisRefuses(t *testing.T) {
	for _, c := range []struct {
		caddyfile string
		line      string
		json      string
		want      string
	}{
		{"redis a b", "1", ``, `store redis: write redis [<url>]`},
		{"redis {\nhost localhost\n}", "2", ``, `unrecognized subdirective "host" of store redis`},
		{"redis {\ndb 1\ndb 1\n}", "3", ``, `db is given twice; keep one`},
		{"redis {\naddress\n}", "2", ``, `an argument is missing after 'address'`},
		{"redis {\ncluster yes\n}", "2", ``, `wrong argument count or unexpected line ending after 'yes'`},
		{"redis {\nmaster \"\"\n}", "2", ``, `store redis: master is empty; give it a value, or take it out`},
		{"redis {\nusername \"\"\n}", "2", ``, `store redis: username is empty; give it a value, or take it out`},
		{"redis {\nprefix \"\"\n}", "2", ``, `store redis: prefix is empty; give it a value, or take it out`},
		{"redis {\npassword \"\"\n}", "2", ``, `store redis: password is empty; give it a value, or take it out`},
		{"redis {\nsentinel_password \"\"\n}", "2", ``, `store redis: sentinel_password is empty; give it a value, or take it out`},
		{"redis {\npassword\n}", "2", ``, `store redis: write password <secret>, in quotes if it holds spaces`},
		{"redis {\npassword a b\n}", "2", ``, `store redis: write password <secret>, in quotes if it holds spaces`},
		{"redis {\nsentinel_password a b\n}", "2", ``, `store redis: write sentinel_password <secret>, in quotes if it holds spaces`},
		{"redis {\nhash_keys\n}", "2", ``, `store redis: write hash_keys <secret> [<former secret>]`},
		{"redis {\nhash_keys a b c\n}", "2", ``, `store redis: write hash_keys <secret> [<former secret>]`},
		{"redis {\nhash_keys \"\"\n}", "2", `"hash_keys":[""]`, `store redis: hash_keys: a secret is shorter than 16 bytes; make one with openssl rand -base64 32`},
		{"redis {\nhash_keys 0123456789abcdef short\n}", "2", `"hash_keys":["0123456789abcdef","short"]`, `store redis: hash_keys: a secret is shorter than 16 bytes; make one with openssl rand -base64 32`},
		{"redis {\nhash_keys 0123456789abcdef 0123456789abcdef\n}", "2", `"hash_keys":["0123456789abcdef","0123456789abcdef"]`, `store redis: hash_keys: the two secrets are the same; take out the second`},

		{"redis localhost:6379", "1", `"url":"localhost:6379"`, `store redis: url: `},
		{"redis http://localhost:6379", "1", `"url":"http://localhost:6379"`, `store redis: url: `},
		{"redis \"\"", "1", ``, `store redis: url is empty; give it a value, or take it out`},
		{"redis redis://localhost:6379/x", "1", `"url":"redis://localhost:6379/x"`, `store redis: url: invalid database number: write /<db> as the path`},
		{"redis redis://localhost:70000", "1", `"url":"redis://localhost:70000"`, `store redis: url: port must be from 1 to 65535`},
		{"redis redis://h:0", "1", `"url":"redis://h:0"`, `store redis: url: port must be from 1 to 65535`},
		{"redis redis://h?read_timeout=1s", "1", `"url":"redis://h?read_timeout=1s"`, `store redis: url: redis: unexpected option: read_timeout`},
		{"redis redis://h/-1 {\ncluster\n}", "1", `"url":"redis://h/-1"`, `store redis: db -1: must not be negative`},
		{"redis redis://h?db=-1", "1", `"url":"redis://h?db=-1"`, `store redis: db -1: must not be negative`},
		{"redis unix:///tmp/x%ff.sock", "1", `"url":"unix:///tmp/x%ff.sock"`, `store redis: address, master and prefix must be text in UTF-8`},
		{"redis redis://h?master_name=%ff", "1", `"url":"redis://h?master_name=%ff"`, `store redis: address, master and prefix must be text in UTF-8`},
		{"redis redis://h?pool_size=5000000000 {\ncluster\n}", "1", `"url":"redis://h?pool_size=5000000000"`, `store redis: pool_size 5000000000: must be from 1 to 100000`},
		{"redis redis://h?pool_size=-1", "1", `"url":"redis://h?pool_size=-1"`, `store redis: pool_size -1: must be from 1 to 100000`},
		{"redis redis://h?pool_size=100001&master_name=m", "1", `"url":"redis://h?pool_size=100001&master_name=m"`, `store redis: pool_size 100001: must be from 1 to 100000`},
		{"redis redis://a:1/3?addr=b:2", "1", `"url":"redis://a:1/3?addr=b:2"`, `store redis: db 3: a Cluster has only database 0`},
		{"redis redis://a:1/3 {\ncluster\n}", "3", `"url":"redis://a:1/3","cluster":true`, `store redis: db 3: a Cluster has only database 0`},
		{"redis redis://a/6 {\ndb 0\ntimeout 1s\n}", "4", ``, `store redis: db differs between the URL and the option; take out one`},
		{"redis redis://a/6 {\ndb 3\n}", "3", `"url":"redis://a/6","db":3`, `store redis: db differs between the URL and the option; take out one`},
		{"redis redis://u:p@a {\npassword q\n}", "3", `"url":"redis://u:p@a","password":"q"`, `store redis: password differs between the URL and the option; take out one`},
		{"redis redis://u:p@a {\nusername q\n}", "3", `"url":"redis://u:p@a","username":"q"`, `store redis: username differs between the URL and the option; take out one`},
		{"redis redis://a?master_name=m {\nmaster n\n}", "3", `"url":"redis://a?master_name=m","master":"n"`, `store redis: master differs between the URL and the option; take out one`},
		{"redis redis://u:p@a?master_name=m {\nsentinel_username v\n}", "3", `"url":"redis://u:p@a?master_name=m","sentinel_username":"v"`, `store redis: sentinel_username differs between the URL and the option; take out one`},
		{"redis redis://u:p@a?master_name=m {\nsentinel_password q\n}", "3", `"url":"redis://u:p@a?master_name=m","sentinel_password":"q"`, `store redis: sentinel_password differs between the URL and the option; take out one`},
		{"redis redis://a?pool_size=1 {\npool_size 2\n}", "3", `"url":"redis://a?pool_size=1","pool_size":2`, `store redis: pool_size differs between the URL and the option; take out one`},
		{"redis redis://localhost:6379?nonsense=1", "1", `"url":"redis://localhost:6379?nonsense=1"`, `store redis: url: redis: unexpected option: nonsense`},
		{"redis redis://localhost {\naddress localhost:6379\n}", "3", `"url":"redis://localhost","address":["localhost:6379"]`, `store redis: url and address cannot be combined; take out one`},
		{"redis {\naddress localhost\n}", "2", `"address":["localhost"]`, `store redis: address "localhost": must be host:port`},
		{"redis {\naddress localhost:\n}", "2", `"address":["localhost:"]`, `store redis: address "localhost:": must be host:port`},
		{"redis {\naddress localhost:x\n}", "2", `"address":["localhost:x"]`, `store redis: address "localhost:x": port must be from 1 to 65535`},
		{"redis {\naddress localhost:0\n}", "2", `"address":["localhost:0"]`, `store redis: address "localhost:0": port must be from 1 to 65535`},
		{"redis {\naddress localhost:65536\n}", "2", `"address":["localhost:65536"]`, `store redis: address "localhost:65536": port must be from 1 to 65535`},
		{"redis {\naddress redis://localhost:6379\n}", "2", `"address":["redis://localhost:6379"]`, `store redis: address: must be host:port; use redis <url> for a URL`},
		{"redis {\naddress redis://{env.REDIS_HOST}:6379\n}", "2", `"address":["redis://{env.REDIS_HOST}:6379"]`, `store redis: address: must be host:port; use redis <url> for a URL`},
		{"redis {\naddress ::1:6379\n}", "2", `"address":["::1:6379"]`, `store redis: address "::1:6379": must be host:port`},
		{"redis {\naddress a:1 b\n}", "2", `"address":["a:1","b"]`, `store redis: address "b": must be host:port`},
		{"redis {\nmaster m\n}", "3", `"master":"m"`, `store redis: master: address must name the Sentinels`},
		{"redis {\nmaster m\naddress a:1\ncluster\n}", "5", `"master":"m","address":["a:1"],"cluster":true`, `store redis: master and cluster cannot be combined; take out one`},
		{"redis redis://a {\nmaster m\ncluster\n}", "4", `"url":"redis://a","master":"m","cluster":true`, `store redis: master and cluster cannot be combined; take out one`},
		{"redis redis://a?master_name=m {\ncluster\n}", "3", `"url":"redis://a?master_name=m","cluster":true`, `store redis: master and cluster cannot be combined; take out one`},
		{"redis redis://a?addr=b:1 {\nmaster m\n}", "3", `"url":"redis://a?addr=b:1","master":"m"`, `store redis: master and cluster cannot be combined; take out one`},
		{"redis {\nsentinel_password s\n}", "3", `"sentinel_password":"s"`, `store redis: sentinel_username and sentinel_password are for Sentinels, so master <name> is required`},
		{"redis redis://a {\nsentinel_username u\n}", "3", `"url":"redis://a","sentinel_username":"u"`, `store redis: sentinel_username and sentinel_password are for Sentinels, so master <name> is required`},
		{"redis {\ndb -1\n}", "2", `"db":-1`, `store redis: db -1: must not be negative`},
		{"redis {\ndb first\n}", "2", ``, `store redis: db "first" is not a whole number`},
		{"redis {\ndb 1\naddress a:1 b:1\n}", "4", `"db":1,"address":["a:1","b:1"]`, `store redis: db 1: a Cluster has only database 0`},
		{"redis redis://a?addr=b:1 {\ndb 1\n}", "3", `"url":"redis://a?addr=b:1","db":1`, `store redis: db 1: a Cluster has only database 0`},
		{"redis {\ncluster\ndb 1\n}", "4", `"db":1,"cluster":true`, `store redis: db 1: a Cluster has only database 0`},
		{"redis {\ntimeout 0\n}", "2", ``, `store redis: timeout "0": must be greater than 0`},
		{"redis {\ntimeout -1s\n}", "2", `"timeout":"-1s"`, `store redis: timeout -1s: must be greater than 0`},
		{"redis {\ntimeout 100us\n}", "2", `"timeout":100000`, `store redis: timeout 100µs: must be at least 1ms`},
		{"redis {\ntimeout 100\n}", "2", ``, `store redis: timeout 100 has no unit; write 100ms for milliseconds`},
		{"redis {\ntimeout 10m\n}", "2", `"timeout":"10m"`, `store redis: timeout 10m0s: must be at most 30s, as each request would wait for it while Redis is away; write 10ms for milliseconds`},
		{"redis {\ntimeout 31s\n}", "2", `"timeout":"31s"`, `store redis: timeout 31s: must be at most 30s, as each request would wait for it while Redis is away`},
		{"redis {\naddress a:1 b:1 a:1\n}", "2", `"address":["a:1","b:1","a:1"]`, `store redis: address: a server is named twice, which would make a Cluster of it; take out one`},
		{"redis {\ntls {\nca a\ninsecure_skip_verify\n}\n}", "5", `"tls":{"ca":"a","insecure_skip_verify":true}`, `store redis: tls: ca and insecure_skip_verify cannot be combined: any certificate would be accepted; take out insecure_skip_verify`},
		{"redis {\npool_size -1\n}", "2", `"pool_size":-1`, `store redis: pool_size -1: must be from 1 to 100000`},
		{"redis {\npool_size 0\n}", "2", ``, `store redis: pool_size 0: must be from 1 to 100000`},
		{"redis {\npool_size 100001\ncluster\n}", "2", `"pool_size":100001,"cluster":true`, `store redis: pool_size 100001: must be from 1 to 100000`},
		{"redis {\npool_size 5000000000\n}", "2", `"pool_size":5000000000`, `store redis: pool_size 5000000000: must be from 1 to 100000`},
		{"redis {\npool_size 1e3\n}", "2", ``, `store redis: pool_size "1e3" is not a whole number`},
		{"redis {\nprefix a}b\n}", "2", `"prefix":"a}b"`, `store redis: prefix "a}b": must not hold braces, which pick the slot in a Cluster`},
		{"redis rediss://a?skip_verify=true {\ntls {\nserver_name b\n}\n}", "5", `"url":"rediss://a?skip_verify=true","tls":{"server_name":"b"}`, `store redis: tls: the URL says skip_verify; write insecure_skip_verify in its place, or take it out`},
		{"redis {\ntls yes\n}", "2", ``, `wrong argument count or unexpected line ending after 'yes'`},
		{"redis {\ntls {\nverify\n}\n}", "3", ``, `unrecognized subdirective "verify" of store redis tls`},
		{"redis {\ntls {\nca a\nca b\n}\n}", "4", ``, `ca is given twice; keep one`},
		{"redis {\ntls {\nca a b\n}\n}", "3", ``, `wrong argument count or unexpected line ending after 'a'`},
		{"redis {\ntls {\nca \"\"\n}\n}", "3", ``, `store redis: tls: ca is empty; give it a value, or take it out`},
		{"redis {\ntls {\ninsecure_skip_verify yes\n}\n}", "3", ``, `wrong argument count or unexpected line ending after 'yes'`},
		{"redis {\ntls {\ncert c\n}\n}", "4", `"tls":{"cert":"c"}`, `store redis: tls: cert and key must be set together; add the other one`},
		{"redis {\ntls {\nkey k\n}\n}", "4", `"tls":{"key":"k"}`, `store redis: tls: cert and key must be set together; add the other one`},
	} {
		_, err := parseRedis(c.caddyfile)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !strings.HasSuffix(err.Error(), ", at Testfile:"+c.line) {
			t.Errorf("%q:\ngot  %v\nwant %s, at Testfile:%s", c.caddyfile, err, c.want, c.line)
		}
		if c.json == "" {
			continue
		}
		r := new(Redis)
		if err := json.Unmarshal([]byte("{"+c.json+"}"), r); err != nil {
			t.Errorf("%s: %v", c.json, err)
		}
		if err := r.Provision(caddy.Context{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", c.json, err, c.want)
		}
		if err := r.Cleanup(); err != nil {
			t.Errorf("%s: Cleanup: got %v, want no error", c.json, err)
		}
	}
}

// A password does not come out with an error.
func TestRedisErrorsKeepSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://u:s3cret@localhost:6379/x",
		"redis://u:s3cret@localhost:port",
		"http://u:s3cret@localhost",
		"redis://u:s3cret@localhost?nonsense=1",
		"redis://u:s3cret%zz@localhost",
		"redis://u:s3cret@[::1",
	} {
		r := Redis{URL: url}
		if err := r.Provision(caddy.Context{}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
	for text, want := range map[string]string{
		"redis {\npassword s3cret more\n}":             "write password",
		"redis {\nsentinel_password s3cret more\n}":    "write sentinel_password",
		"redis {\nhash_keys s3cret more s3cret-too\n}": "write hash_keys",
		"redis {\nhash_keys s3cret\n}":                 "shorter than 16 bytes",

		"redis {\nhash_keys a-former-s3cret-is-it a-former-s3cret-is-it\n}": "are the same",
		"redis redis://u:pass s3cret@localhost":                             "write redis [<url>]",
	} {
		if _, err := parseRedis(text); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s, without the secret", text, err, want)
		}
	}
	t.Setenv("STORES_TEST_SHORT", "s3cret")
	t.Setenv("STORES_TEST_LONG", "s3cret-of-many-bytes")
	for _, c := range []struct {
		module Redis
		want   string
	}{
		{Redis{Password: "a{s3cret}b"}, "password: the braces are not a placeholder"},
		{Redis{URL: "redis://localhost?master_name=m", SentinelPassword: "a{s3cret}b"}, "sentinel_password: the braces are not a placeholder"},
		{Redis{URL: "redis://u:a{s3cret}b@localhost"}, "url: the braces are not a placeholder"},
		{Redis{HashKeys: []string{"of-sixteen-bytes-{s3cret}"}}, "hash_keys 1: the braces are not a placeholder"},
		{Redis{HashKeys: []string{"{env.STORES_TEST_SHORT}"}}, "hash_keys: a secret is shorter than 16 bytes"},
		{Redis{HashKeys: []string{"{env.STORES_TEST_LONG}", "s3cret-of-many-bytes"}}, "hash_keys: the two secrets are the same"},
		{Redis{HashKeys: []string{"{env.STORES_TEST_NONE}"}}, "hash_keys 1: {env.STORES_TEST_NONE} has no value"},
		{Redis{HashKeys: []string{"{file./nowhere/to/be/found}"}}, "hash_keys 1: {file./nowhere/to/be/found} has no value"},
		{Redis{HashKeys: []string{}}, "hash_keys takes one secret"},
		{Redis{URL: "redis://{env.STORES_TEST_LONG}", SentinelPassword: "s3cret"}, "sentinel_username and sentinel_password are for Sentinels"},
	} {
		r := c.module
		if err := r.Provision(caddy.Context{}); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "store redis: "+c.want) {
			t.Errorf("got %v, want %s, without the secret", err, c.want)
		}
	}
	// What a placeholder gave is not repeated; what was written is.
	file := filepath.Join(t.TempDir(), "s3cret.pem")
	if err := os.WriteFile(file, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"URL": "redis://u:s3cret@localhost:6379", "PORT": "s3cret:port", "BRACES": "{s3cret}", "FILE": file,
		"OPTION": "redis://localhost?s3cret=1", "DB": "redis://localhost/s3cret", "BYTES": "s3cret\xff",
		"KEY": "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
	} {
		t.Setenv("STORES_TEST_"+name, value)
	}
	for _, c := range []struct {
		module Redis
		want   string
	}{
		{Redis{Address: []string{"{env.STORES_TEST_URL}"}}, `address "{env.STORES_TEST_URL}": must be host:port; use redis <url> for a URL`},
		{Redis{Address: []string{"{env.STORES_TEST_PORT}"}}, `address "{env.STORES_TEST_PORT}": port must be from 1 to 65535`},
		{Redis{Address: []string{"a:1", "u:s3cret@{env.STORES_TEST_SHORT}"}}, `address: must be host:port; use redis <url> for a URL`},
		{Redis{Address: []string{"redis://u:s3cret@localhost:6379"}}, `address: must be host:port; use redis <url> for a URL`},
		{Redis{Address: []string{"u:s3cret@localhost:6379"}}, `address: must be host:port; use redis <url> for a URL`},
		{Redis{Address: []string{"s3cret@localhost:6379"}}, `address: must be host:port; use redis <url> for a URL`},
		{Redis{Prefix: "{env.STORES_TEST_BRACES}"}, `prefix "{env.STORES_TEST_BRACES}": must not come out with braces`},
		{Redis{Prefix: "{env.STORES_TEST_BYTES}"}, `address, master and prefix must be text in UTF-8`},
		{Redis{Address: []string{"{env.STORES_TEST_BYTES}:1"}}, `address, master and prefix must be text in UTF-8`},
		{Redis{URL: "{env.STORES_TEST_OPTION}"}, `url: redis: unexpected option; write redis://`},
		{Redis{URL: "{env.STORES_TEST_DB}"}, `url: invalid database number`},
		{Redis{TLS: &TLS{CA: "{env.STORES_TEST_KEY}"}}, `tls: ca: open {env.STORES_TEST_KEY}: `},
		{Redis{TLS: &TLS{CA: "{env.STORES_TEST_FILE}"}}, `tls: ca {env.STORES_TEST_FILE}: holds no certificate`},
		{Redis{TLS: &TLS{Cert: "{env.STORES_TEST_KEY}", Key: file}}, `tls: cert: open {env.STORES_TEST_KEY}: `},
		{Redis{TLS: &TLS{Cert: file, Key: "{env.STORES_TEST_KEY}"}}, `tls: key: open {env.STORES_TEST_KEY}: `},
		{Redis{TLS: &TLS{Cert: file, Key: "{env.STORES_TEST_KEY}{env.STORES_TEST_KEY}"}}, `tls: key: open {env.STORES_TEST_KEY}{env.STORES_TEST_KEY}: `},
		{Redis{TLS: &TLS{Cert: file, Key: "-----BEGIN PRIVATE KEY-----\ns3cret"}}, `tls: key: must be the path of a file`},
		{Redis{TLS: &TLS{Cert: "{env.STORES_TEST_FILE}", Key: file}}, `tls: cert: `},
	} {
		r := c.module
		if err := r.Provision(caddy.Context{}); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "store redis: "+c.want) {
			t.Errorf("got %v, want %s, without the secret", err, c.want)
		}
	}
	t.Setenv("STORES_TEST_PASSWORD", "s3cret")
	r := &Redis{
		URL: "redis://u:{env.STORES_TEST_PASSWORD}@localhost:6379", Password: "{env.STORES_TEST_PASSWORD}",
		HashKeys: []string{"{env.STORES_TEST_LONG}"},
	}
	if err := r.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Cleanup() }()
	if name := r.Store().String(); strings.Contains(name, "s3cret") {
		t.Errorf("the store is called %s", name)
	}
	if b, _ := json.Marshal(r); strings.Contains(string(b), "s3cret") {
		t.Errorf("the module is %s", b)
	}
}

// Modules that mean the same connections share them, and the last one closes.
func TestRedisIsPooled(t *testing.T) {
	t.Setenv("STORES_TEST_ADDRESS", "localhost:6379")
	open := func(r Redis) *Redis {
		t.Helper()
		if err := r.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	one, two := open(Redis{Address: []string{"localhost:6379"}}), open(Redis{Address: []string{"{env.STORES_TEST_ADDRESS}"}})
	if one.Store() != two.Store() {
		t.Error("the same options: got two stores, want one")
	}
	for name, other := range map[string]Redis{
		"prefix":   {Address: []string{"localhost:6379"}, Prefix: "other"},
		"password": {Address: []string{"localhost:6379"}, Password: "other"},
		"timeout":  {Address: []string{"localhost:6379"}, Timeout: caddy.Duration(time.Second)},
		"secret":   {Address: []string{"localhost:6379"}, HashKeys: []string{"the first of secrets"}},
		"former":   {Address: []string{"localhost:6379"}, HashKeys: []string{"the first of secrets", "the one before that"}},
		"tls":      {Address: []string{"localhost:6379"}, TLS: new(TLS)},
	} {
		r := open(other)
		if r.Store() == one.Store() {
			t.Errorf("another %s: got the same store, want another", name)
		}
		if err := r.Cleanup(); err != nil {
			t.Errorf("another %s: Cleanup: got %v, want no error", name, err)
		}
	}
	bytes, others := open(Redis{Password: "\xfe"}), open(Redis{Password: "\xff"})
	if bytes.Store() == others.Store() {
		t.Error("passwords of other bytes: got one store, want two")
	}
	_, _ = bytes.Cleanup(), others.Cleanup()
	first := one.Store()
	if err := errors.Join(one.Cleanup(), two.Cleanup()); err != nil {
		t.Errorf("Cleanup: got %v, want no error", err)
	}
	again := open(Redis{Address: []string{"localhost:6379"}})
	defer func() { _ = again.Cleanup() }()
	if again.Store() == first {
		t.Error("after the last Cleanup: got the closed store, want a new one")
	}
}

// What panics while a store is made is an error, and leaves the pool as it was: the
// next configuration does not wait for it.
func TestAcquireAfterPanic(t *testing.T) {
	pool := caddy.NewUsagePool()
	if p, err := acquire(pool, "key", func() window.Store { panic("too large") }); p != nil || err == nil || err.Error() != "cannot be made: too large" {
		t.Errorf("a store that panics: got %v, %v, want the reason", p, err)
	}
	p, err := acquire(pool, "key", func() window.Store { return memory.New(memory.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	if err := p.release(); err != nil {
		t.Errorf("release: got %v, want no error", err)
	}
}

// TestReports writes many reports in one second as one line.
func TestReports(t *testing.T) {
	if err := caddy.Load([]byte(`{"admin":{"disabled":true,"config":{"persist":false}},"logging":{"logs":{"default":{"writer":{"output":"stores_test"}}}}}`), true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	logged.Reset()
	r := new(reports)
	for range 3 {
		r.add(errors.New("the reason"))
	}
	if text := logged.String(); strings.Count(text, "could not be corrected") != 1 || !strings.Contains(text, "the reason") {
		t.Errorf("logged %q, want one line", text)
	}
	r.written = r.written.Add(-time.Second)
	r.add(errors.New("another reason"))
	if text := logged.String(); !strings.Contains(text, `"error":"another reason","others":2`) {
		t.Errorf("logged %q, want a line with the number of the others", text)
	}
}

func init() { caddy.RegisterModule(logWriter{}) }

// logged is what Caddy writes with the output stores_test.
var logged bytes.Buffer

type logWriter struct{}

func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.stores_test", New: func() caddy.Module { return logWriter{} }}
}

func (logWriter) String() string                      { return "stores_test" }
func (logWriter) WriterKey() string                   { return "stores_test" }
func (logWriter) OpenWriter() (io.WriteCloser, error) { return logWriter{}, nil }
func (logWriter) Write(p []byte) (int, error)         { return logged.Write(p) }
func (logWriter) Close() error                        { return nil }

// What is configured beside a URL gets to the client, each option for itself.
func TestRedisOptions(t *testing.T) {
	r := Redis{
		URL: "redis://localhost:26379", Master: "m", Username: "u", Password: "p", SentinelUsername: "su", SentinelPassword: "sp",
		DB: 3, Prefix: "x", HashKeys: []string{"new", "old"}, Timeout: caddy.Duration(time.Second), PoolSize: 7, TLS: &TLS{ServerName: "n"},
	}
	got, err := r.options(r.TLS)
	if err != nil {
		t.Fatal(err)
	}
	if got.TLS == nil || got.TLS.MinVersion != tls.VersionTLS12 || got.TLS.ServerName != "n" {
		t.Errorf("TLS: got %+v, want 1.2 at least, and the server's name", got.TLS)
	}
	got.TLS = nil
	if want := (redis.Options{
		Addresses: []string{"localhost:26379"}, Master: "m", Username: "u", Password: "p", SentinelUsername: "su", SentinelPassword: "sp",
		DB: 3, Prefix: "x", KeySecret: "new", FormerKeySecret: "old", Timeout: time.Second, PoolSize: 7,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
