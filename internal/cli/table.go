package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// printable returns text for a terminal: control characters of a key must not reach it.
func printable(text string) string {
	if quoted := strconv.Quote(text); text == "" || quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// printZones prints zones, in a fleet with the Caddys that have each.
func printZones(w io.Writer, heading string, zones []fleetZone, fleet bool) {
	_, _ = fmt.Fprintf(w, "%s\n\n", heading)
	header := []string{"ZONE", "DENIED", "SHADOW DENIED", "ALLOWED", "ENFORCE", "LIMITS", "KEY", "STORE", "ALGORITHM", "ON ERROR"}
	if fleet {
		header = append(header, "ONLY AT")
	}
	t := newTable(w, header...)
	t.once, t.counts = []string{"ENFORCE", "STORE", "ALGORITHM", "ON ERROR"}, []string{"SHADOW DENIED"}
	t.below = []string{"STORE", "KEY", "ONLY AT"}
	for _, z := range zones {
		var limits []string
		for _, l := range z.Limits {
			limits = append(limits, l.String())
		}
		t.add(z.Name, z.Outcomes["denied"], z.Outcomes["shadow_denied"], z.Outcomes["allowed"], enforcedUntil(z.Enforce, z.EnforceUntil), strings.Join(limits, ", "), printable(z.Key), z.Store, z.Algorithm, string(z.OnError), strings.Join(z.at, ", "))
	}
	t.render()
}

func enforcedUntil(word, until string) string {
	if until == "" {
		return word
	}
	return word + " until " + until
}

func printEnforced(w io.Writer, answer *control.Enforced) {
	t := newTable(w, "ZONE", "STORE", "ENFORCE")
	t.once = []string{"STORE"}
	for _, z := range answer.Zones {
		t.add(z.Zone, z.Store, enforcedUntil(z.Enforce, z.Until))
	}
	t.render()
	for _, z := range answer.Zones {
		if z.Error != "" {
			_, _ = fmt.Fprintf(w, "Not changed: %s.\n", z.Error)
		}
		if z.Note != "" {
			_, _ = fmt.Fprintf(w, "Zone %s: %s.\n", z.Zone, z.Note)
		}
	}
}

func printStatus(w io.Writer, answer *control.Status) {
	_, _ = fmt.Fprintf(w, "sliding_window %s\n\n", answer.Version)
	t := newTable(w, "STORE", "NODE", "STATE", "SINCE", "CAUSE", "OVERRIDES")
	t.below = []string{"CAUSE"}
	for _, s := range answer.Stores {
		t.add(s.Name, "", s.State, s.Since, printableOrNone(s.Cause), overrideState(&s.Overrides))
		for _, n := range s.Nodes {
			t.add(s.Name, n.Name, control.StateAway, n.Since, printableOrNone(n.Cause), "")
		}
	}
	t.render()
	printMembers(w, answer.Stores)
	printLoads(w, answer.Loads)
	printBans(w, answer.Bans)
	printAlerts(w, answer.Alerts)
}

// printMembers prints the Caddys that share stores.
func printMembers(w io.Writer, stores []control.StoreInfo) {
	t := newTable(w, "CADDY", "STORE", "HEARD OF")
	for _, s := range stores {
		for _, m := range s.Members {
			heard := inSeconds(m.Silent) + " ago"
			if m.Own {
				heard += ", this one"
			}
			t.add(printable(m.Name), s.Name, heard)
		}
	}
	if len(t.rows) > 0 {
		_, _ = fmt.Fprintln(w)
		t.render()
	}
}

func printLoads(w io.Writer, loads []control.ZoneLoad) {
	if len(loads) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ZONE", "STORE", "LOAD FACTOR", "CPU", "MEMORY", "LATENCY")
	for _, l := range loads {
		row := []any{l.Zone, l.Store, percentage(l.Factor)}
		for _, signal := range []string{"cpu", "memory"} {
			row = append(row, percentageOrNone(l.Signals, signal))
		}
		latency := ""
		if s, ok := l.Signals["latency"]; ok {
			latency = strconv.FormatFloat(s, 'f', -1, 64) + "s"
		}
		t.add(append(row, latency)...)
	}
	t.render()
}

func printAlerts(w io.Writer, alerts []control.Alert) {
	if len(alerts) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ALERT OF ZONE", "STORE", "SINCE", "DENIED", "OF REQUESTS", "SHARE")
	for _, a := range alerts {
		t.add(a.Zone, a.Store, a.Since, a.Denied, a.Requests, strconv.FormatFloat(a.DeniedRatio*100, 'f', 1, 64)+"%")
	}
	t.render()
}

func percentageOrNone(values map[string]float64, name string) string {
	if share, ok := values[name]; ok {
		return percentage(share)
	}
	return ""
}

func percentage(share float64) string { return strconv.FormatFloat(share*100, 'f', 0, 64) + "%" }

func printableOrNone(text string) string {
	if text == "" {
		return ""
	}
	return printable(text)
}

func storeState(s control.InspectedStore) string {
	if s.State == control.StateOK {
		return s.State
	}
	return strings.TrimSpace(s.State+" since "+cmp.Or(s.Since, "just now")) + ": " + printable(s.Cause)
}

func inSeconds(seconds float64) string {
	return (time.Duration(seconds*1000) * time.Millisecond).String()
}

func printReset(w io.Writer, answer *control.Reset) {
	what := "was reset"
	if !answer.Done {
		what = "will be reset"
	}
	of := ""
	if answer.Tier != "" {
		of = "tier " + answer.Tier + " of "
	}
	_, _ = fmt.Fprintf(w, "%s in %szone %s %s.\n", printable(answer.Key), of, answer.Zone, what)
	if note := answer.Note; note != "" {
		_, _ = fmt.Fprintln(w, strings.ToUpper(note[:1])+note[1:]+".")
	}
}
