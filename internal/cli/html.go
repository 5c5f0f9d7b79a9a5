package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/page"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/suggest"
)

// writePage writes a report as a page to a file, which only its owner may read: it may have keys.
func writePage(name string, d page.Document) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // #nosec G304 -- the operator names it
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if err := page.Write(file, d); err != nil {
		_ = file.Close()
		return fmt.Errorf("--html %s: %w", name, err)
	}
	return file.Close()
}

// replayDocument is a report of a replay.
func replayDocument(r *replay.Report) page.Document {
	d := page.Document{Title: "What limits would have denied", About: filesOf(r.Log), Facts: factsOf(r.Log), Notes: printableAll(r.Notes)}
	for i := range r.Zones {
		d.Sections = append(d.Sections, zoneSection(&r.Zones[i]))
	}
	if r.Against != nil {
		d.Sections = append(d.Sections, againstSection(r.Against))
	}
	return d
}

// filesOf names the files of a log, and its time.
func filesOf(l replay.Log) string {
	return fmt.Sprintf("%s, %s to %s", strings.Join(printableAll(l.Files), ", "), l.From, l.To)
}

func factsOf(l replay.Log) []page.Fact {
	facts := []page.Fact{{Name: "Requests", Value: page.Number(float64(l.Requests))}}
	for _, f := range []struct {
		name string
		n    int64
		note string
	}{
		{"Broken lines", l.Broken, "could not be read"},
		{"Late", l.Late, "requests came out of order"},
		{"Answered 429 already", l.Were429, "a limit was on, and hid demand"},
	} {
		if f.n > 0 {
			facts = append(facts, page.Fact{Name: f.name, Value: page.Number(float64(f.n)), Note: f.note, Bad: true})
		}
	}
	return facts
}

// grouped is counted with commas between thousands.
func grouped(n int64, thing string) string {
	_, thing, _ = strings.Cut(counted(n, thing), " ")
	return page.Number(float64(n)) + " " + thing
}

func zoneSection(z *replay.Zone) page.Section {
	about := ""
	if z.Estimated {
		about = "about "
	}
	s := page.Section{
		Title: "Zone " + printable(z.Zone), About: "enforce " + z.Enforce,
		Facts: []page.Fact{
			{Name: "Denied", Value: page.Percent(z.Share), Note: page.Number(float64(z.Denied)) + " of " + grouped(z.Requests, "request"), Bad: z.Denied > 0},
			{Name: "Keys denied", Value: page.Number(float64(z.Affected)), Note: "of " + about + grouped(z.Keys, "key")},
		},
	}
	if z.Obeying < z.Denied {
		s.Facts = append(s.Facts, page.Fact{Name: "Denied if clients wait", Value: page.Number(float64(z.Obeying)), Note: "as Retry-After asks"})
	}
	if z.Requests == 0 {
		return s
	}
	s.Plots = []page.Plot{overTime(bars(z.Hours))}
	limits := page.Table{Title: "By limit", Head: []string{"limit", "denied"}}
	for _, l := range z.Limits {
		limits.Rows = append(limits.Rows, []string{l.Limit, page.Number(float64(l.Denied))})
	}
	if z.Others > 0 {
		limits.Rows = append(limits.Rows, []string{"without a key, by an override or by a ban", page.Number(float64(z.Others))})
	}
	s.Beside = append(s.Beside, limits)
	if len(z.Top) > 0 {
		top := page.Table{Title: "Most affected", Head: []string{"key", "denied", "requests", "share", "first denied", "longest"}}
		for _, k := range z.Top {
			top.Rows = append(top.Rows, []string{printable(k.Key), page.Number(float64(k.Denied)), page.Number(float64(k.Requests)), page.Percent(k.Share), k.First, (time.Duration(k.Longest*1000) * time.Millisecond).String()})
		}
		s.Tables = append(s.Tables, top)
	}
	return s
}

// bars returns the hours of a log as bars.
func bars(hours []replay.Hour) []page.Bar {
	var all []page.Bar
	for _, h := range hours {
		if at, err := time.Parse(time.RFC3339, h.Start); err == nil {
			all = append(all, page.Bar{X0: float64(at.Unix()), X1: float64(at.Add(time.Hour).Unix()), Y: float64(h.Requests), Part: float64(h.Denied)})
		}
	}
	return all
}

// overTime plots what was denied.
func overTime(bars []page.Bar) page.Plot {
	return page.Plot{Title: "Denied over time", About: "Requests, and those of them that are denied.", XName: "time, UTC", Time: true, Names: [2]string{"requests", "denied"}, Bars: bars}
}

func againstSection(a *replay.Against) page.Section {
	s := page.Section{
		Title: "Against the other configuration",
		Facts: []page.Fact{
			{Name: "Denied before", Value: page.Number(float64(a.DeniedBefore))}, {Name: "Denied now", Value: page.Number(float64(a.DeniedNow))},
			{Name: "Newly denied", Value: page.Number(float64(a.Newly)), Note: grouped(a.NewlyKeys, "key"), Bad: a.Newly > 0},
			{Name: "No longer denied", Value: page.Number(float64(a.NoLonger)), Note: grouped(a.NoLongerKeys, "key")},
		},
	}
	for _, part := range []struct {
		title string
		keys  []replay.Changed
	}{{"Newly denied, or more often", a.TopMore}, {"No longer denied, or less often", a.TopLess}} {
		t := page.Table{Title: part.title, Head: []string{"key", "zone", "denied before", "denied now"}}
		for _, k := range part.keys {
			t.Rows = append(t.Rows, []string{printable(k.Key), printable(k.Zone), page.Number(float64(k.Before)), page.Number(float64(k.Now))})
		}
		if len(t.Rows) > 0 {
			s.Tables = append(s.Tables, t)
		}
	}
	return s
}

// suggestionDocument is a report of a suggestion.
func suggestionDocument(s *replay.Suggestion) page.Document {
	d := page.Document{Title: "Which limits?", About: filesOf(s.Log), Facts: factsOf(s.Log), Notes: printableAll(s.Notes)}
	d.Facts = slices.Insert(d.Facts, 1, page.Fact{Name: "Keys", Value: page.Number(float64(s.Keys)), Note: printable(s.Key)})
	if s.Requests == 0 {
		return d
	}
	var pair []string
	for _, l := range s.Pair {
		pair = append(pair, fmt.Sprintf("%s in %s", page.Number(float64(l.Limit)), l.Text))
	}
	suggested := page.Section{
		Title: "Suggested: " + strings.Join(pair, " and "),
		Facts: []page.Fact{
			{Name: "Denied", Value: page.Percent(float64(s.Denied.Requests) / float64(s.Requests)), Note: page.Number(float64(s.Denied.Requests)) + " of " + grouped(s.Requests, "request"), Bad: s.Denied.Requests > 0},
			{Name: "Keys denied", Value: page.Number(float64(s.Denied.Keys)), Note: "of " + grouped(int64(s.Keys), "key")},
		},
		Code: s.Zone,
	}
	var over []page.Bar
	for _, p := range s.Spans {
		over = append(over, page.Bar{X0: float64(p.Start.Unix()), X1: float64(p.Start.Unix() + s.Step), Y: float64(p.Requests), Part: float64(p.Denied)})
	}
	suggested.Plots = []page.Plot{overTime(over)}
	if len(s.Top) > 0 {
		top := page.Table{Title: "Most affected", Head: []string{"key", "denied", "requests"}}
		for _, w := range s.Windows {
			top.Head = append(top.Head, "peak in "+w.Text)
		}
		for _, k := range s.Top {
			row := []string{printable(k.Key), page.Number(float64(k.Denied)), page.Number(float64(k.Requests))}
			for _, peak := range k.Peaks {
				row = append(row, page.Number(float64(peak)))
			}
			top.Rows = append(top.Rows, row)
		}
		suggested.Tables = append(suggested.Tables, top)
	}
	d.Sections = append(d.Sections, suggested)
	for i := range s.Windows {
		d.Sections = append(d.Sections, windowSection(s, &s.Windows[i]))
	}
	return d
}

func windowSection(s *replay.Suggestion, w *suggest.Window) page.Section {
	section := page.Section{Title: "In " + w.Text, Facts: []page.Fact{{Name: "Limit by this window alone", Value: page.Number(float64(w.Limit))}}}
	for _, of := range []struct {
		what string
		suggest.Percentiles
	}{{"keys", w.ByKey}, {"requests", w.ByRequest}} {
		section.Facts = append(section.Facts, page.Fact{Name: "Peaks by " + of.what, Value: fmt.Sprintf("%d · %d · %d", of.P50, of.P99, of.Max), Note: fmt.Sprintf("p50 · p99 · max; p90 %d, p99.9 %d", of.P90, of.P999)})
	}
	if w.Gap != nil {
		section.About = fmt.Sprintf("%s with peaks far above the others: %s and more, where the next one is %s.", grouped(int64(w.Gap.Keys), "key"), page.Number(float64(w.Gap.Above)), page.Number(float64(w.Gap.Below)))
	}
	marks := []page.Mark{{X: float64(w.Limit), Text: fmt.Sprintf("limit %d", w.Limit)}}
	denied := page.Line{Name: "requests denied"}
	keys := page.Line{Name: "keys denied"}
	for _, p := range w.Curve {
		denied.Points = append(denied.Points, [2]float64{float64(p.Limit), float64(p.Requests) / float64(s.Requests)})
		keys.Points = append(keys.Points, [2]float64{float64(p.Limit), float64(p.Keys) / float64(s.Keys)})
	}
	section.Plots = []page.Plot{
		{Title: "Distribution of peaks", About: "How many keys have which peak: their most requests in any " + w.Text + ".", XName: "peak", LogX: true, LogY: true, Names: [2]string{"keys", ""}, Bars: peakBars(w.Peaks), Marks: marks},
		{Title: "Denied by a limit", About: "The share of requests and of keys that a limit in " + w.Text + " denies.", XName: "limit", LogX: true, Share: true, Lines: []page.Line{denied, keys}, Marks: marks},
	}
	return section
}

// peakBars counts keys by peak, in bars that grow by a quarter each.
func peakBars(peaks []suggest.Count) []page.Bar {
	var all []page.Bar
	for _, c := range peaks {
		for len(all) == 0 || float64(c.Peak) >= all[len(all)-1].X1 {
			from := max(1, c.Peak)
			if len(all) > 0 {
				from = int(all[len(all)-1].X1)
			}
			all = append(all, page.Bar{X0: float64(from), X1: float64(from + max(1, from/4))})
		}
		all[len(all)-1].Y += float64(c.Keys)
	}
	return all
}
