package redis_test

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// A client with a token in place of a password, which others may use, too. While Redis is away, this process
// counts.
func ExampleNewWithClient() {
	client := goredis.NewClient(&goredis.Options{
		Addr: server.Addr, ContextTimeoutEnabled: true,
		CredentialsProvider: func() (user, token string) { return "", "" },
	})
	defer func() { _ = client.Close() }()
	store, err := redis.NewWithClient(client, redis.Options{Prefix: "example", Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	limiter, err := window.NewLimiter(store, "mails", window.Log{}, window.Policy{Limit: 2, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	limiter.OnError = window.Local
	d, err := limiter.Allow(context.Background(), "anna@example.com")
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 1 <nil>
}
