package slidingwindow

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// The watcher looks at the zones at once and then each second, from the first begin to the last end.
func TestWatcherLooksEachSecond(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, twoAnHour+`,"alert":{"over":"10s","min":"1"}`, ``))
	zones := []*runningZone{h.newRunningZone(h.Zones[0])}
	running.add(zones)
	t.Cleanup(func() { running.remove(zones) })
	own := h.Zones[0].seen.tally
	synctest.Test(t, func(t *testing.T) {
		own.born, own.since = time.Now(), time.Now() // of the clock of the test
		w := new(watcher)
		w.begin()
		w.begin()
		synctest.Wait()
		own.denied.Add(1)
		synctest.Wait()
		if len(listAlerts()) != 0 {
			t.Error("it looks again at once")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if all := listAlerts(); len(all) != 1 || all[0].Zone != h.Zones[0].Name || all[0].Denied != 1 {
			t.Errorf("alerts %v after a second, want one", all)
		}
		w.end()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if all := listAlerts(); len(all) != 1 {
			t.Errorf("alerts %v while the denial is within the time", all)
		}
		if own.told.denied != 1 {
			t.Errorf("the summary after ten seconds has %+v", own.told)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if all := listAlerts(); len(all) != 0 {
			t.Errorf("alerts %v after its time, want none", all)
		}
		own.denied.Add(1)
		w.end()
		time.Sleep(time.Minute)
		if all := listAlerts(); len(all) != 0 {
			t.Errorf("alerts %v after the last end", all)
		}
	})
}

// The command shows alerts, and no table without alerts.
func TestStatusShowsAlerts(t *testing.T) {
	var with, without strings.Builder
	printStatus(&with, &control.Status{Alerts: []control.Alert{{Zone: "logins", Store: "memory", Since: "2026-01-02T03:04:05Z", DeniedRatio: 0.1234, Denied: 1234, Requests: 10000}}})
	for _, want := range []string{"ALERT OF ZONE", "logins", "2026-01-02T03:04:05Z", "1234", "10000", "12.3%"} {
		if !strings.Contains(with.String(), want) {
			t.Errorf("got\n%s\nwant %s", with.String(), want)
		}
	}
	printStatus(&without, &control.Status{Alerts: []control.Alert{}})
	if strings.Contains(without.String(), "ALERT") {
		t.Errorf("got\n%s", without.String())
	}
}
