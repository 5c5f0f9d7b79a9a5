package window_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// A limiter lets two mails a minute pass for each sender.
func Example() {
	store := memory.New(memory.Options{Now: func() int64 { return 1_800_000_000_000 }}) // leave Now out
	defer func() { _ = store.Close() }()
	limiter, err := window.NewLimiter(store, "mails", window.Log{}, window.Policy{Limit: 2, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := limiter.Allow(context.Background(), "anna@example.com")
		if err != nil {
			panic(err) // the store is away
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}

// What cannot work is refused before the first request.
func ExampleNewZone() {
	_, err := window.NewZone("api", window.Slices{Count: 10}, []window.Policy{{Limit: -1, Window: time.Hour}}, window.Options{})
	fmt.Println(errors.Is(err, window.ErrInvalid))
	fmt.Println(err)
	// Output:
	// true
	// zone "api": invalid charge: limit -1 is negative; use 0 to deny everything
}

// A request is charged in all of its zones or in none.
func ExampleStore_take() {
	store := memory.New(memory.Options{Now: func() int64 { return 1_800_000_000_000 }})
	defer func() { _ = store.Close() }()
	zone := func(name string, limit int64) *window.Zone {
		z, err := window.NewZone(name, window.Zset{}, []window.Policy{{Limit: limit, Window: time.Second}}, window.Options{})
		if err != nil {
			panic(err)
		}
		return z
	}
	everybody, perClient := zone("everybody", 10), zone("per_client", 1)
	for _, client := range []string{"anna", "anna", "bert"} {
		ds, err := store.Take(context.Background(), []window.Charge{everybody.Charge("", 1), perClient.Charge(client, 1)})
		if err != nil {
			panic(err)
		}
		fmt.Println(client, window.Allowed(ds), ds[0].Remaining)
	}
	// Output:
	// anna true 9
	// anna false 9
	// bert true 8
}

// What turned out cheaper than it seemed is given back at the time at which it was spent.
func ExampleStore_settle() {
	store := memory.New(memory.Options{Now: func() int64 { return 1_800_000_000_000 }})
	defer func() { _ = store.Close() }()
	tokens, err := window.NewZone("tokens", window.Log{}, []window.Policy{{Limit: 1000, Window: time.Minute}}, window.Options{})
	if err != nil {
		panic(err)
	}
	charge := tokens.Charge("anna", 700)
	ds, err := store.Take(context.Background(), []window.Charge{charge})
	if err != nil {
		panic(err)
	}
	if err := store.GiveBack(context.Background(), charge, ds[0].At, 450); err != nil {
		panic(err)
	}
	ds, err = store.Peek(context.Background(), []window.Charge{charge})
	if err != nil {
		panic(err)
	}
	fmt.Println(ds[0].Remaining)
	// Output: 750
}
