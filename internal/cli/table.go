package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// newTable returns a table that is plain text, for terminals and pipes.
func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.AppendHeader(header)
	return t
}

// printable returns text for a terminal: control characters of a key must not reach it.
func printable(text string) string {
	if quoted := strconv.Quote(text); text == "" || quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

func printZones(w io.Writer, answer *control.Zones) {
	t := newTable(w, "ZONE", "STORE", "KEY", "LIMITS", "ALGORITHM", "ON ERROR", "ENFORCE", "ALLOWED", "DENIED", "SHADOW DENIED")
	for _, z := range answer.Zones {
		var limits []string
		for _, l := range z.Limits {
			limits = append(limits, l.Max+" in "+l.Window)
		}
		t.AppendRow(table.Row{z.Name, z.Store, printable(z.Key), strings.Join(limits, ", "), z.Algorithm, z.OnError, enforcedUntil(z.Enforce, z.EnforceUntil), z.Outcomes["allowed"], z.Outcomes["denied"], z.Outcomes["shadow_denied"]})
	}
	t.Render()
}

func enforcedUntil(word, until string) string {
	if until == "" {
		return word
	}
	return word + " until " + until
}

func printEnforced(w io.Writer, answer *control.Enforced) {
	t := newTable(w, "ZONE", "STORE", "ENFORCE")
	for _, z := range answer.Zones {
		t.AppendRow(table.Row{z.Zone, z.Store, enforcedUntil(z.Enforce, z.Until)})
	}
	t.Render()
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
	for _, s := range answer.Stores {
		t.AppendRow(table.Row{s.Name, "", s.State, s.Since, printableOrNone(s.Cause), overrideState(&s.Overrides)})
		for _, n := range s.Nodes {
			t.AppendRow(table.Row{s.Name, n.Name, control.StateAway, n.Since, printableOrNone(n.Cause)})
		}
	}
	t.Render()
	printLoads(w, answer.Loads)
	printAlerts(w, answer.Alerts)
}

func printLoads(w io.Writer, loads []control.ZoneLoad) {
	if len(loads) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ZONE", "STORE", "LOAD FACTOR", "CPU", "MEMORY", "LATENCY")
	for _, l := range loads {
		row := table.Row{l.Zone, l.Store, percentage(l.Factor)}
		for _, signal := range []string{"cpu", "memory"} {
			row = append(row, percentageOrNone(l.Signals, signal))
		}
		latency := ""
		if s, ok := l.Signals["latency"]; ok {
			latency = strconv.FormatFloat(s, 'f', -1, 64) + "s"
		}
		t.AppendRow(append(row, latency))
	}
	t.Render()
}

func printAlerts(w io.Writer, alerts []control.Alert) {
	if len(alerts) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ALERT OF ZONE", "STORE", "SINCE", "DENIED", "OF REQUESTS", "SHARE")
	for _, a := range alerts {
		t.AppendRow(table.Row{a.Zone, a.Store, a.Since, a.Denied, a.Requests, strconv.FormatFloat(a.DeniedRatio*100, 'f', 1, 64) + "%"})
	}
	t.Render()
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
	_, _ = fmt.Fprintf(w, "%s in zone %s %s.\n", printable(answer.Key), answer.Zone, what)
	if answer.Note != "" {
		_, _ = fmt.Fprintln(w, answer.Note+".")
	}
}
