package handlertest

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"
)

// TestOtherClientsLog makes another plugin's Redis client fail beside a store: its lines are neither
// swallowed nor under the name of this module, and the store's are no warnings.
func TestOtherClientsLog(t *testing.T) {
	const own, other = "127.0.0.1:1", "127.0.0.1:2" // no process listens there
	h, _, logs := NewObservedByDefault(t, zap.DebugLevel,
		OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+own+`"],"timeout":"1s"}`))
	Serve(t, Get(), h)
	c := goredis.NewClient(&goredis.Options{
		Addr: other, DialerRetries: 1, MaxRetries: -1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("somebody answers at " + other)
	}
	found := make(map[string]string) // loggers and levels by address
	for _, line := range logs.FilterMessage("client").All() {
		said, _ := line.ContextMap()["message"].(string)
		for _, address := range []string{own, other} {
			if strings.Contains(said, address+":") {
				found[address] = line.LoggerName + " " + line.Level.String()
			}
		}
	}
	for address, want := range map[string]string{own: "http.sliding_window.stores.redis debug", other: "go-redis warn"} {
		if found[address] != want {
			t.Errorf("the client of %s logs as %q, want %q", address, found[address], want)
		}
	}
}
