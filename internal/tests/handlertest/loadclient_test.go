package handlertest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A client is the key of the most specific zone of the directive, and else the address. What fails for one client alone
// does not change the latency, and what fails for two does.
func TestLoadTellsClientsApart(t *testing.T) {
	const byHeader, byPath = "{http.request.header.X-Client}", "{http.request.header.X-Path}"
	zone := func(name, key string, limit int, more string) string {
		return fmt.Sprintf(`{"name":"%s","key":"%s","limits":[{"max":%d,"window":"1m"}]%s}`, name, key, limit, more)
	}
	everybody := func(key string) string {
		return zone("%s", key, 100_000, `,"load":{"latency":{"lo":"200ms","hi":"1s"}}`)
	}
	type sender struct{ address, client string }
	ask := func(h caddyhttp.MiddlewareHandler, from sender, path string, status int) {
		r := Get()
		r.RemoteAddr = net.JoinHostPort(from.address, "1")
		r.Header.Set("X-Path", path)
		if from.client != "" {
			r.Header.Set("X-Client", from.client)
		}
		_ = AnswerWith(h, httptest.NewRecorder(), r, func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(status)
			return nil
		})
	}
	for name, c := range map[string]struct {
		zones string
		fail  [2]sender // one client, or two
		one   bool
	}{
		"address":                {everybody("all"), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.1", "b"}}, true},
		"addresses":              {everybody("all"), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.2", "a"}}, false},
		"network":                {everybody("all"), [2]sender{{"2001:db8::1", ""}, {"2001:db8::ffff:1", ""}}, true},
		"networks":               {everybody("all"), [2]sender{{"2001:db8::1", ""}, {"2001:db8:0:1::1", ""}}, false},
		"key":                    {everybody("all") + "," + zone("client", byHeader, 10_000, ""), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.2", "a"}}, true},
		"keys":                   {everybody("all") + "," + zone("client", byHeader, 10_000, ""), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.1", "b"}}, false},
		"the lower limit":        {zone("path", byPath, 20_000, "") + "," + everybody("all") + "," + zone("client", byHeader, 10_000, ""), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.1", "b"}}, false},
		"the higher limit":       {zone("path", byPath, 10_000, "") + "," + everybody("all") + "," + zone("client", byHeader, 20_000, ""), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.1", "b"}}, true},
		"shadow":                 {everybody("all") + "," + zone("client", byHeader, 10_000, `,"enforce":"shadow"`), [2]sender{{"192.0.2.1", "a"}, {"192.0.2.2", "a"}}, true},
		"no value":               {everybody("all") + "," + zone("client", "x-"+byHeader, 10_000, `,"empty_key":"shared"`), [2]sender{{"192.0.2.1", ""}, {"192.0.2.2", ""}}, false},
		"not counted":            {everybody("all") + "," + zone("client", byHeader, 10_000, `,"empty_key":"skip"`), [2]sender{{"192.0.2.1", ""}, {"192.0.2.1", ""}}, true},
		"the key of timed zones": {everybody("{http.request.host}"), [2]sender{{"192.0.2.1", ""}, {"192.0.2.2", ""}}, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			p := newPressure(t)
			h, _ := p.loaded(t, fmt.Sprintf(`{"zones":[`+c.zones+`]}`, ZoneName(t)))
			for i := range 60 {
				ask(h, c.fail[i%2], "/", http.StatusBadGateway)
			}
			for i := range 60 {
				n := strconv.Itoa(i % 4)
				ask(h, sender{"198.51.100." + n, "other" + n}, "/"+n, http.StatusOK)
			}
			p.step(1)
			if latency := loadOf(t, ZoneName(t)).Signals["latency"]; (latency < 0.2) != c.one {
				t.Errorf("latency %v, want what one client alone sees left out: %v", latency, c.one)
			}
		})
	}
}
