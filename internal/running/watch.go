package running

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
)

// Watcher looks at the zones that run, each second.
var Watcher = alert.NewWatcher(watch)

// watch looks at all zones that run. Of two configurations, the newer one says what to watch for.
func watch(now time.Time) {
	for _, zones := range Zones.List() {
		z := zones[0]
		z.Control.Current() // which notes that its time is over
		z.Recorder.Watch(z.Alerting, now)
		z.note(now)
	}
}

// note takes a sample of what the zone has decided, if it is time.
func (z *ActiveZone) note(now time.Time) {
	h := &z.Recorder.Counters.Recent
	if !h.Due(now) {
		return
	}
	h.Note(now, z.Counters.Counts().Plus(z.Control.ShadowCounts()))
}

// Alerts returns the alerts that have fired, by zone.
func Alerts() []control.Alert {
	all := []control.Alert{}
	for _, zones := range Zones.List() {
		if a := zones[0].Recorder.Alert(); a != nil {
			all = append(all, *a)
		}
	}
	return all
}

// Loads returns the load of the zones that run.
func Loads() (all []control.ZoneLoad) {
	for _, zones := range Zones.List() {
		if l := zones[0].Load; l != nil {
			all = append(all, l.State())
		}
	}
	return all
}
