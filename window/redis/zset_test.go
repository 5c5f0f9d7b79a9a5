package redis_test

import (
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestZsetTidiesUp holds that units which have left the window do not count, and that
// they go: by the server's clock, one call of eight removes them.
func TestZsetTidiesUp(t *testing.T) {
	const key, limit, calls = "tidy:zset:zone:key", 1_000, 400 // (7/8)^400 is below 10^-23
	s, c := newStore(t, redis.Options{Prefix: "tidy"}), server.Client(t)
	for i := range 10 {
		if err := c.ZAdd(t.Context(), key, goredis.Z{Score: float64(i), Member: "left:" + strconv.Itoa(i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := charge("zone", "key", limit, time.Hour)
	for n := int64(1); n <= calls; n++ {
		if d := take(t, s, one)[0]; d.Remaining != limit-n {
			t.Fatalf("call %d: %+v, want %d to remain", n, d, limit-n)
		}
		if left := c.ZCard(t.Context(), key).Val() - n; left == 0 {
			return
		} else if left != 10 {
			t.Fatalf("call %d: %d that have left are there, want all or none", n, left)
		}
	}
	t.Errorf("after %d calls, those that have left are still there", calls)
}
