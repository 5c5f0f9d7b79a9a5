package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// Three log-ins pass in any hour and two in any minute, for each user.
func Example() {
	now := int64(1_800_000_000_000)
	store := memory.New(memory.Options{MaxKeys: 100_000, Now: func() int64 { return now }}) // leave Now out
	defer func() { _ = store.Close() }()
	logins, err := window.NewLimiter(store, "logins", window.Log{},
		window.Policy{Limit: 3, Window: time.Hour}, window.Policy{Limit: 2, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	for range 5 {
		d, err := logins.Allow(context.Background(), "anna")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
		now += 25_000
	}
	fmt.Println(store.Keys(), "key")
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 10s
	// true 0 0s
	// false 0 58m20s
	// 1 key
}
