package e2e_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const (
	redisPage = "docs/redis.md"
	// counter is that of the client of redisSite.
	counter = "sw:2-zset:per_client:203.0.113.7"
)

// TestRedisPage does on real servers what docs/redis.md tells an operator to do, and looks
// at what it says of them.
func TestRedisPage(t *testing.T) {
	t.Run("users", testUsersSurvive)
	t.Run("eviction", testEviction)
	t.Run("persistence", testPersistence)
	t.Run("Sentinel", testSentinelExample)
	t.Run("Cluster", testClusterExample)
	t.Run("rotation", testRotation)
}

// redisSite serves a limit of 100 in a minute on a server, and 503 without the server.
func redisSite(t *testing.T, server *redistest.Server) *recipe {
	t.Helper()
	return serveBlock(t, redisPage, "Distance and timeout", 1,
		"rediss://redis.example.com:6380", "redis://"+server.Addr, "timeout 250ms\n\t\t}\n", "timeout 5s\n\t\t}\n\t\ton_error deny\n")
}

// spend takes n of the client's units.
func (r *recipe) spend(n int) {
	r.Helper()
	r.want(n, http.StatusOK, http.MethodGet, "/", from("203.0.113.7")...)
}

func testUsersSurvive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	if s, err := redistest.Launch(t.TempDir(), "--aclfile", file); err == nil {
		s.Kill()
		t.Error("Redis starts without the file")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, "--aclfile", file)
	setUser := aclLine(t)
	command := strings.Fields(strings.TrimPrefix(shellBelow(t, redisPage, "A user that survives a restart"), "redis-cli "))
	ping := func() error {
		s := redis.New(redis.Options{Addresses: []string{server.Addr}, Username: "caddy", Password: "secret", Timeout: 5 * time.Second})
		defer func() { _ = s.Close() }()
		return s.Ping(t.Context())
	}
	send(t, server.Client(t), setUser...)
	server.Restart(t)
	if err := ping(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("after a restart without ACL SAVE: %v, want WRONGPASS", err)
	}
	send(t, server.Client(t), setUser...)
	send(t, server.Client(t), command...)
	server.Restart(t)
	if err := ping(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if strings.Contains(readFile(t, file), "secret") {
		t.Error("the file holds the password")
	}
}

// aclLine is the command that makes the user.
func aclLine(t *testing.T) []string {
	t.Helper()
	return strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(readFile(t, redisPage)))
}

func send(t *testing.T, c *goredis.Client, args ...string) {
	t.Helper()
	var words []any
	for _, arg := range args {
		words = append(words, arg)
	}
	if err := c.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

func testEviction(t *testing.T) {
	for _, policy := range []string{"noeviction", "allkeys-lru", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory-policy", policy)
			r, c := redisSite(t, server), server.Client(t)
			r.spend(100)
			used := infoOf(t, c, "memory", "used_memory")
			send(t, c, "CONFIG", "SET", "maxmemory", strconv.Itoa(used+4<<20))
			value := strings.Repeat("x", 1<<10)
			there := func() bool { return c.Exists(t.Context(), counter).Val() == 1 }
			for round := 0; round < 20 && there(); round++ {
				_, _ = c.Pipelined(t.Context(), func(pipe goredis.Pipeliner) error { // refused with noeviction
					for i := range 2_000 {
						pipe.Set(t.Context(), strconv.Itoa(round*2_000+i), value, time.Hour)
					}
					return nil
				})
			}
			if policy == "noeviction" {
				if !there() || infoOf(t, c, "stats", "evicted_keys") != 0 {
					t.Error("the counter is gone")
				}
				send(t, c, "CONFIG", "SET", "maxmemory", strconv.Itoa(infoOf(t, c, "memory", "used_memory")-1<<20)) // without buffers
				r.want(1, http.StatusServiceUnavailable, http.MethodGet, "/", from("203.0.113.8")...)
				return
			}
			if there() || infoOf(t, c, "stats", "evicted_keys") == 0 {
				t.Fatal("the counter is still there")
			}
			r.spend(100) // once more
		})
	}
}

// infoOf returns a number of INFO.
func infoOf(t *testing.T, c *goredis.Client, section, name string) int {
	t.Helper()
	text := regexp.MustCompile(`(?m)^` + name + `:(\d+)`).FindStringSubmatch(c.Info(t.Context(), section).Val())
	if text == nil {
		t.Fatalf("INFO %s does not say %s", section, name)
	}
	n, err := strconv.Atoi(text[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testPersistence spends 60 units, saves what the setting saves, spends 40, and starts the
// server again.
func testPersistence(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    []string
		save    string
		orderly bool
		left    int64
	}{
		{"nothing, killed", nil, "", false, 0},
		{"nothing, stopped", nil, "", true, 0},
		{"snapshots, killed", nil, "60 1", false, 60},
		{"snapshots, stopped", nil, "60 1", true, 100},
		{"everysec, killed", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, "", false, 100},
		{"everysec, stopped", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, "", true, 100},
		{"always, killed", []string{"--appendonly", "yes", "--appendfsync", "always"}, "", false, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.args...)
			r, c := redisSite(t, server), server.Client(t)
			send(t, c, "CONFIG", "SET", "save", test.save)
			r.spend(60)
			if test.save != "" {
				send(t, c, "SAVE")
			}
			r.spend(40)
			if len(test.args) > 0 { // a busy disk may hold up the file for two seconds
				caddyrun.Eventually(t, 20*time.Second, "all is in the file", func() bool {
					return infoOf(t, c, "persistence", "aof_buffer_length") == 0
				})
			}
			if test.orderly {
				_ = c.Shutdown(t.Context()).Err()
			}
			server.Restart(t)
			if n := units(t, c); n != test.left {
				t.Errorf("%d units are left, want %d", n, test.left)
			}
		})
	}
}

// testRotation changes the password as the page has it, while requests come.
func testRotation(t *testing.T) {
	const heading = "Rotate the password"
	file, secret := filepath.Join(t.TempDir(), "users.acl"), filepath.Join(t.TempDir(), "redis")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "")
	write(secret, "secret\n")
	server := redistest.Start(t, "--aclfile", file)
	c := server.Client(t)
	send(t, c, aclLine(t)...)
	replace := []string{
		"localhost:6379\n", server.Addr + "\n\t\t\ttimeout 5s\n",
		"{file./run/secrets/redis}\n\t\t}\n", "{file." + secret + "}\n\t\t}\n\t\ton_error deny\n",
	}
	r := serveBlock(t, redisPage, heading, 1, replace...)
	r.spend(20)
	send(t, c, "ACL", "SETUSER", "caddy", ">new")
	send(t, c, "ACL", "SAVE")
	r.spend(20)
	write(secret, "new\n")
	r.load(blockBelow(t, redisPage, heading, 1), replace...) // loadCaddy forces it
	r.spend(20)
	send(t, c, "ACL", "SETUSER", "caddy", "<secret")
	send(t, c, "ACL", "SAVE")
	r.spend(20)
	server.Client(t).ClientKillByFilter(t.Context(), "USER", "caddy")
	r.ask(http.MethodGet, "/", from("203.0.113.9")...) // may find its connection closed
	r.spend(20)
	r.want(1, http.StatusTooManyRequests, http.MethodGet, "/", from("203.0.113.7")...)
	if n := units(t, c); n != 100 {
		t.Errorf("Redis has counted %d, want 100", n)
	}
}

// configured is a server that runs with a configuration of the page.
type configured struct {
	port string
	done chan struct{}
	cmd  *exec.Cmd
}

func (s *configured) address() string { return net.JoinHostPort("127.0.0.1", s.port) }

func (s *configured) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// startConfigured runs a server until the end of the test with a configuration of the page,
// whose passwords are made up, and with texts replaced.
func startConfigured(t *testing.T, config, users string, args []string, replace ...string) *configured {
	t.Helper()
	dir, s := t.TempDir(), &configured{port: strconv.Itoa(redistest.FreePort(t)), done: make(chan struct{})}
	replace = append(replace,
		"/etc/redis/users.acl", filepath.Join(dir, "users.acl"),
		"port 6379", "port "+s.port, "port 26379", "port "+s.port,
		"<permissions>", redis.Permissions, "<password of ", "", ">\n", "\n", "> ", " ")
	r := strings.NewReplacer(replace...)
	for name, text := range map[string]string{"server.conf": config, "users.acl": users} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(r.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := new(bytes.Buffer)
	var err error
	if s.cmd, err = redistest.Command(log, append([]string{filepath.Join(dir, "server.conf"), "--dir", dir}, args...)...); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(s.kill)
	caddyrun.Eventually(t, 20*time.Second, "a server answers", func() bool {
		select {
		case <-s.done:
			t.Fatalf("the server ended:\n%s", log)
		default:
		}
		c, err := net.DialTimeout("tcp", s.address(), time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return s
}

// client asks a server as a user whose password is its name.
func (s *configured) client(t *testing.T, user string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{
		Addr: s.address(), Username: user, Password: user, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// secretsOf writes files with the passwords of users, and returns their directory.
func secretsOf(t *testing.T, users map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, user := range users {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(user), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testSentinelExample(t *testing.T) {
	const heading = "Sentinel"
	blocks := blocksOf(sectionOf(t, redisPage, heading), "conf")
	if len(blocks) != 3 || !strings.Contains(blocks[2], redis.SentinelPermissions) {
		t.Fatalf("%d configurations, or a user without %s", len(blocks), redis.SentinelPermissions)
	}
	master := startConfigured(t, blocks[0], blocks[1], nil)
	replica := startConfigured(t, blocks[0], blocks[1], []string{"--replicaof", "127.0.0.1", master.port})
	var sentinels []*configured
	for range 3 {
		sentinels = append(sentinels, startConfigured(t, blocks[2], "", []string{"--sentinel"}, "10.0.0.11 6379", "127.0.0.1 "+master.port))
	}
	for _, s := range sentinels {
		c := goredis.NewSentinelClient(&goredis.Options{Addr: s.address(), DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { _ = c.Close() })
		caddyrun.Eventually(t, 30*time.Second, "the Sentinels know each other", func() bool {
			about, err := c.Master(context.Background(), "limits").Result()
			return err == nil && about["num-other-sentinels"] == "2" && about["num-slaves"] == "1"
		})
	}
	secrets := secretsOf(t, map[string]string{"redis": "caddy", "sentinel": "watcher"})
	r := serveBlock(t, redisPage, heading, 1,
		"10.0.0.21:26379 10.0.0.22:26379 10.0.0.23:26379", sentinels[0].address()+" "+sentinels[1].address()+" "+sentinels[2].address()+"\n\t\t\ttimeout 1s",
		"/run/secrets/sentinel}\n\t\t}\n", "/run/secrets/sentinel}\n\t\t}\n\t\ton_error deny\n",
		"/run/secrets", secrets)
	r.spend(60)
	c := replica.client(t, "caddy")
	caddyrun.Eventually(t, 20*time.Second, "the replica has it", func() bool {
		return units(t, c) == 60
	})
	master.kill()
	caddyrun.Eventually(t, 30*time.Second, "the replica is used", func() bool {
		return r.ask(http.MethodGet, "/", from("203.0.113.7")...).Status == http.StatusOK
	})
	r.spend(39)
	r.want(1, http.StatusTooManyRequests, http.MethodGet, "/", from("203.0.113.7")...)
	// A store outlives its configuration by some seconds, and listens to the Sentinels.
	_ = caddy.Stop()
	caddyrun.Eventually(t, 30*time.Second, "nothing listens to the Sentinels", func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("sentinelFailover"))
	})
}

func testClusterExample(t *testing.T) {
	const heading = "Cluster"
	blocks := blocksOf(sectionOf(t, redisPage, heading), "conf")
	if len(blocks) != 2 || !strings.Contains(blocks[1], redis.ClusterPermissions) {
		t.Fatalf("%d configurations, or a user without %s", len(blocks), redis.ClusterPermissions)
	}
	var nodes []*configured
	command := strings.Replace(strings.TrimSpace(shellBelow(t, redisPage, heading)), "--askpass", "--cluster-yes", 1)
	replace := []string{}
	for i := range 6 {
		node := startConfigured(t, blocks[0], blocks[1], nil)
		nodes = append(nodes, node)
		replace = append(replace, "10.0.0.3"+strconv.Itoa(i+1)+":6379", node.address())
	}
	create := exec.Command("redis-cli", strings.Fields(strings.NewReplacer(replace...).Replace(command))[1:]...)
	create.Env = append(os.Environ(), "REDISCLI_AUTH=default")
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, node := range nodes {
		caddyrun.Eventually(t, 30*time.Second, "the Cluster is ready", func() bool {
			info, err := node.client(t, "default").ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6")
		})
	}
	secrets := secretsOf(t, map[string]string{"redis": "caddy"})
	r := serveBlock(t, redisPage, heading, 1, append(replace[:6],
		"/run/secrets/redis}\n\t\t}\n", "/run/secrets/redis}\n\t\t\ttimeout 5s\n\t\t}\n\t\ton_error deny\n", "/run/secrets", secrets)...)
	r.spend(100)
	r.want(1, http.StatusTooManyRequests, http.MethodGet, "/", from("203.0.113.7")...)
	holders := 0
	for _, node := range nodes {
		holders += int(node.client(t, "default").DBSize(t.Context()).Val())
	}
	if holders != 1 && holders != 2 { // the replica may still be on its way
		t.Errorf("%d counters in the Cluster, want one and its replica", holders)
	}
}

// units returns how many units the client's counter holds. Members with scores from 2^50 on
// keep how far back the zone looks.
func units(t *testing.T, c *goredis.Client) int64 {
	t.Helper()
	return c.ZCount(t.Context(), counter, "-inf", "(1125899906842624").Val()
}
