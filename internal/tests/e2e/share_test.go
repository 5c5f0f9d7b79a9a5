package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A Caddy counts as long as its configuration has share, or a zone with concurrent, through reloads, and is no
// instance any more when it has not.
func TestShareInRedis(t *testing.T) {
	server := redistest.Start(t)
	redis, ctx := server.Client(t), context.Background()
	options := ""
	load := func(share string, limit int) {
		t.Helper()
		if err := loadCaddy(fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
	sliding_window {
		store redis {
			address %s
			timeout 5s
		}
		on_error local %s
	}
}
http://%s {
	sliding_window {
		zone shared {
			limit %d 1h
			%s
		}
	}
}
`, server.Addr, share, caddyrun.FreeAddress(t), limit, options)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	instances := func() []string { return redis.ZRange(ctx, "sw:2-{instances}", 0, -1).Val() }

	load("{\n share\n }", 10)
	caddyrun.Eventually(t, 20*time.Second, "one instance", func() bool { return len(instances()) == 1 })
	first := instances()[0]
	load("{\n share\n }", 20)
	if all := instances(); len(all) != 1 || all[0] != first {
		t.Errorf("after a reload there are the instances %q, want %q", all, first)
	}
	load("", 20)
	if all := instances(); len(all) != 0 {
		t.Errorf("without share there are the instances %q, want none", all)
	}
	options = "concurrent 4"
	load("", 20)
	caddyrun.Eventually(t, 20*time.Second, "one instance with concurrent", func() bool { return len(instances()) == 1 })
	if all := instances(); all[0] != first || !regexp.MustCompile(`^[\w-]{1,16}-[\w-]{8}$`).MatchString(first) {
		t.Errorf("the instance is %q and then %q, want the host and something random", first, all)
	}
	options = ""
	load("", 20)
	if all := instances(); len(all) != 0 {
		t.Errorf("without share and concurrent there are the instances %q, want none", all)
	}
	load("{\n share\n }", 20)
	caddyrun.Eventually(t, 20*time.Second, "one instance again", func() bool { return len(instances()) == 1 })
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	if all := instances(); len(all) != 0 {
		t.Errorf("after the end there are the instances %q, want none", all)
	}
}
