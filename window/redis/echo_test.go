package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestEcho makes servers repeat what they are told, in every kind of reply: no error holds the
// password, or the key of a client.
func TestEcho(t *testing.T) {
	for name, reply := range map[string]func(args []string) string{
		"unknown command": func(args []string) string {
			return fmt.Sprintf("-ERR unknown command '%s', with args beginning with: '%s'", args[0], strings.Join(args[1:], "' '"))
		},
		"an error that is the argument": func(args []string) string { return "-" + args[len(args)-1] + " " + strings.Join(args, " ") },
		"a known kind":                  func(args []string) string { return "-NOPERM " + strings.Join(args, " ") },
		"a status":                      func(args []string) string { return "+" + strings.Join(args, " ") },
		"an array of texts": func(args []string) string {
			reply := fmt.Sprintf("*%d", len(args))
			for _, arg := range args {
				reply += fmt.Sprintf("\r\n$%d\r\n%s", len(arg), arg)
			}
			return reply
		},
		"no reply at all": func(args []string) string { return strings.Join(args, " ") },
	} {
		for _, cluster := range []bool{false, true} {
			addr := fakeServer(t, func(args []string) string {
				for i, arg := range args {
					args[i] = strings.NewReplacer("\r", " ", "\n", " ").Replace(arg)
				}
				return reply(args)
			})
			s := newStore(t, redis.Options{Addresses: []string{addr}, Cluster: cluster, Username: "limiter", Password: "s3cret-password"})
			c := charge("zone", "s3cret-key", 1, time.Hour)
			native := nativeCharge("s3cret-key", 1, window.GCRA{Native: window.NativeOn}, window.Policy{Limit: 1, Window: time.Hour})
			_, take := s.Take(t.Context(), []window.Charge{c})
			_, throttle := s.Take(t.Context(), []window.Charge{native})
			_, attend := redis.Full(s).Register(t.Context())
			for what, err := range map[string]error{"Take": take, "CL.THROTTLE": throttle, "ChargeMore": s.ChargeMore(t.Context(), c, 1), "Ping": s.Ping(t.Context()), "Register": attend} {
				if !errors.Is(err, window.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%s, Cluster %v: %s = %v, want an error without secrets", name, cluster, what, err)
				}
			}
		}
	}
}
