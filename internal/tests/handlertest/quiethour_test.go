package handlertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// A quiet hour with 20 zones that deny a little, seldom or all the time, is at most 1,300 lines. Those of one zone
// begin with one after ten seconds at most and end with one that says so.
func TestLinesOfAQuietHour(t *testing.T) {
	for name, every := range map[string][]int{ // seconds
		"seldom": {1, 2, 5, 10, 20, 30, 45, 59, 60, 61, 70, 80, 90, 110, 120, 130, 150, 180, 200, 600},
		"always": slices.Repeat([]int{1}, 20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zones := make([]string, len(every))
				for i := range every {
					zones[i] = fmt.Sprintf(`{"name":"quiet_%d","key":"all","limits":[{"max":0,"window":"1h"}],"match":[{"header":{"X-Zone":["%d"]}}]}`, i, i)
				}
				h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, `{"zones":[`+strings.Join(zones, ",")+`]}`)
				Start(t, ctx)
				for second := range 3600 {
					for i, seconds := range every {
						if second%seconds == 0 {
							if w := Serve(t, Get("X-Zone", fmt.Sprint(i)), h); w.Code != http.StatusTooManyRequests {
								t.Fatalf("got %d", w.Code)
							}
						}
					}
					time.Sleep(time.Second)
				}
				if n := logs.Len(); n > 1300 {
					t.Errorf("%d lines in an hour, want 1300 at most", n)
				}
				t.Logf("%d lines in an hour", logs.Len())
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				before := logs.Len()
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := logs.Len(); n != before {
					t.Errorf("%d lines on zones that deny nothing", n-before)
				}
				own := logs.FilterField(zap.String("zone", "quiet_0")).All()
				first, second, last := own[0], own[1], own[len(own)-1]
				if first.ContextMap()["period"].(time.Duration) > 10*time.Second || second.ContextMap()["period"].(time.Duration) < time.Minute {
					t.Errorf("the first line is after %v and the second after %v more", first.ContextMap()["period"], second.ContextMap()["period"])
				}
				denied := int64(0)
				for _, line := range own[:len(own)-1] {
					denied += line.ContextMap()["denied"].(int64)
				}
				if last.Message != "zone has stopped denying requests" || last.ContextMap()["denied"] != int64(3600) || denied != 3600 {
					t.Errorf("the last line is %s %v, and the others count %d denials, want 3600", last.Message, last.ContextMap(), denied)
				}
				if lasted := last.ContextMap()["lasted"].(time.Duration); lasted < 59*time.Minute || lasted > 62*time.Minute {
					t.Errorf("it lasted %s, want an hour", lasted)
				}
			})
		})
	}
}
