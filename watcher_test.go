package slidingwindow

import (
	"testing"
	"testing/synctest"
	"time"
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
