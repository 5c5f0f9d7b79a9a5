package handlertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

const (
	secretA = `"the first secret of a fleet"`
	secretB = `"the second secret of a fleet"`
)

// limited is the configuration of a handler with a limit of max, on a Redis whose keys are hashed under secrets.
func limited(t *testing.T, address string, max int, secrets string) string {
	t.Helper()
	return OfZone(t, ofKey+fmt.Sprintf(`"limits":[{"max":%d,"window":"24h"}],"top_talkers":true`, max),
		`,"store":{"module":"redis","address":["`+address+`"],"timeout":"10s","hash_keys":[`+secrets+`]}`)
}

// Sites whose stores differ in hash_keys alone have nothing in common, whether Redis is there or away: not a count, nor
// the definition of a zone.
func TestHashKeysCountApart(t *testing.T) {
	for name, address := range map[string]func(*testing.T) string{
		"there": func(t *testing.T) string { return redistest.Start(t).Addr },
		"away":  func(t *testing.T) string { return caddyrun.FreeAddress(t) },
	} {
		t.Run(name, func(t *testing.T) {
			own := address(t)
			a, ctx := New(t, limited(t, own, 2, secretA))
			b, err := Another(ctx, limited(t, own, 3, secretB))
			if err != nil {
				t.Fatal(err)
			}
			if n := passes(t, a, "anna", 5); n != 2 {
				t.Errorf("the first site: %d passed, want 2", n)
			}
			if n := passes(t, b, "anna", 5); n != 3 {
				t.Errorf("the second site: %d passed, want 3", n)
			}
			if _, err := Another(ctx, limited(t, own, 4, secretB+","+secretA)); err == nil || !strings.Contains(err.Error(), "defined twice, and not the same") {
				t.Errorf("another zone on a store that counts with them: got %v, want it refused", err)
			}
		})
	}
}

// While a secret changes in its three steps, counts of the time without Redis stay.
func TestHashKeysChangeKeepsLocalCounts(t *testing.T) {
	address := caddyrun.FreeAddress(t)
	load := func(secrets string) (caddyhttp.MiddlewareHandler, func()) {
		t.Helper()
		base, err := caddy.ProvisionContext(&caddy.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := caddy.NewContext(base)
		h, err := Another(ctx, limited(t, address, 6, secrets))
		if err != nil {
			cancel()
			t.Fatal(err)
		}
		return h, cancel
	}
	h, unload := load(secretA)
	if n := passes(t, h, "anna", 2); n != 2 {
		t.Fatalf("%d of 2 passed", n)
	}
	left := 4
	for _, secrets := range []string{secretB + "," + secretA, secretB} {
		next, unloadNext := load(secrets)
		unload()
		h, unload = next, unloadNext
		if n := passes(t, h, "anna", 1); n != 1 {
			t.Errorf("%s: %d of 1 passed", secrets, n)
		}
		left--
	}
	if n := passes(t, h, "anna", 10); n != left {
		t.Errorf("%d more passed, want %d", n, left)
	}
	other, unloadOther := load(secretA)
	if n := passes(t, other, "anna", 10); n != 6 {
		t.Errorf("under the former secret once the change is over: %d passed, want 6", n)
	}
	unloadOther()
	unload()
}

// Operators hear about stores that they cannot tell apart, when the configuration loads and by every command that needs
// to know which is meant. All others go on.
func TestHashKeysOfOneNameAreTold(t *testing.T) {
	address := redistest.Start(t).Addr
	_, ctx, logs := NewObserved(t, zap.WarnLevel, limited(t, address, 2, secretA))
	for _, secrets := range []string{secretB, secretB, secretA} {
		if _, err := Another(ctx, limited(t, address, 2, secrets)); err != nil {
			t.Fatal(err)
		}
	}
	if n := logs.FilterMessageSnippet("stores differ in hash_keys alone").Len(); n != 1 {
		t.Errorf("%d warnings, want 1: %v", n, logs.All())
	}
	Start(t, ctx)
	name := "redis " + address + "/0 sw hashed"
	for path, body := range map[string]string{
		"inspect":           `{"zone":"` + ZoneName(t) + `","key":"anna"}`,
		"reset":             `{"zone":"` + ZoneName(t) + `","key":"anna","store":"` + name + `"}`,
		"overrides/set":     `{"zone":"` + ZoneName(t) + `","key":"anna","deny":true}`,
		"overrides/replace": `{"store":"` + name + `","records":[]}`,
	} {
		if got := Admin(t, http.MethodPost, path, body); !strings.HasPrefix(got, "store: several stores have this name and other hash_keys") {
			t.Errorf("%s: got %s", path, got)
		}
	}
	if got := Admin(t, http.MethodGet, "zones", ""); strings.Count(got, `"name":"`+ZoneName(t)+`"`) != 2 {
		t.Errorf("zones: got %s, want both", got)
	}
	if got := Admin(t, http.MethodGet, "status", ""); strings.Count(got, `"name":"`+name+`"`) != 2 {
		t.Errorf("status: got %s, want both stores", got)
	}
	if got := setEnforce(t, ZoneName(t), "shadow", "1h"); !strings.Contains(got, "several stores") {
		t.Errorf("enforce: got %s", got)
	}
}
