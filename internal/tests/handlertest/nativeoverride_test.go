package handlertest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A zone that one handler has alone and another one beside others is counted by the script in both. An override of its
// limits holds in both, whichever is provisioned first, also before the app has started.
func TestOverrideWhereScriptDecides(t *testing.T) {
	for _, native := range []string{"auto", "off", ""} {
		for _, aloneFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s.%t", native, aloneFirst), func(t *testing.T) {
				store := `"store":{"module":"redis","address":["` + redistest.Start(t).Addr + `"],"timeout":"10s"}`
				algorithm := `{"name":"gcra"}`
				if native != "" {
					algorithm = `{"name":"gcra","native":"` + native + `"}`
				}
				zone := `{"name":"` + ZoneName(t) + `",` + ofKey + `"limits":[{"max":3,"window":"24h"}],"algorithm":` + algorithm + `}`
				alone := `{"zones":[` + zone + `],` + store + `}`
				beside := `{"zones":[` + zone + `,{"name":"` + ZoneName(t) + `.other","key":"all","limits":[{"max":1000,"window":"1h"}]}],` + store + `}`
				configs := []string{beside, alone}
				if aloneFirst {
					configs = []string{alone, beside}
				}
				load := func() (handlers []caddyhttp.MiddlewareHandler, start func()) {
					first, ctx := New(t, configs[0])
					second, err := Another(ctx, configs[1])
					if err != nil {
						t.Fatal(err)
					}
					return []caddyhttp.MiddlewareHandler{first, second}, func() { Start(t, ctx) }
				}
				running, start := load()
				start()
				t.Cleanup(func() { Admin(t, http.MethodPost, "overrides/replace", `{"records":[]}`) })
				setRecords(t, overridestest.Limited("anna", overrides.RecordLimit{Max: 100, Window: "24h"}))
				if got := misfits(t, ZoneName(t)); len(got) > 0 {
					t.Errorf("the override is not applied: %s", got)
				}
				for i, h := range running {
					if n := passes(t, h, "anna", 10); n != 10 {
						t.Errorf("handler %d: %d of 10 passed under the override", i+1, n)
					}
				}
				reloaded, _ := load()
				for i, h := range reloaded {
					if n := passes(t, h, "anna", 10); n != 10 {
						t.Errorf("handler %d before the app starts: %d of 10 passed under the override", i+1, n)
					}
				}
			})
		}
	}
}
