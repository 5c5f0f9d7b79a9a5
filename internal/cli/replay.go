package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/page"
)

// exitTolerated is the exit status if more was denied than --tolerate says.
const exitTolerated = 3

func (c *command) replayCommand() *cobra.Command {
	o := replay.Options{Top: 20, Reorder: time.Minute}
	var tolerate, memory, html string
	cmd := &cobra.Command{
		Use: "replay <log>...", Short: "Shows what limits would have denied, by an access log",
		Long: `
Replays access logs through a configuration: its matchers, zones and counters
decide on each request as they would have done, at the time of the log. Caddy
does not have to run, no server is asked, and nothing is written but the page
of --html.

Logs are Caddy's in JSON or console format, or in the common or combined format
of nginx and Apache; plain, gzip or zstd. Several are merged; - is stdin.

Exits with 3 if a zone denies a larger share of its requests than --tolerate.`,
		Example: `  $ caddy sliding-window replay access.log --config Caddyfile
  $ caddy sliding-window replay access.log.1.gz access.log --config new.Caddyfile --against Caddyfile
  $ caddy sliding-window replay access.log --config Caddyfile --tolerate 0.1% --json`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Against.File, "against", "", "Configuration to compare with: who is newly denied, and who no longer")
	flags.StringVar(&o.Zone, "zone", "", "Name of the only zone to report")
	flags.StringVar(&o.Server, "server", "", "Name of the server, in JSON, that got all requests, if the log does not tell")
	flags.StringVar(&o.Exclude, "exclude", "", "File of keys to leave out of the report, one a line")
	flags.StringVar(&o.Overrides, "overrides", "", "File of overrides that decide, too, as override list --json prints them")
	flags.BoolVar(&o.Keys, "keys", false, "Print keys, which can be personal data, in the place of their hashes")
	flags.IntVar(&o.Top, "top", o.Top, "How many keys of a zone to print")
	flags.DurationVar(&o.Reorder, "reorder", o.Reorder, "How long a request may have taken: lines are put into the order in which their requests came")
	flags.StringVar(&memory, "memory", "2GiB", "Memory for keys; with more keys, figures are estimates")
	flags.StringVar(&html, "html", "", "File to write the report to as a page with plots")
	flags.StringVar(&tolerate, "tolerate", "", "Share of requests that a zone may deny, such as 0.1%")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if o.Memory, err = parseBytes(memory); err != nil {
			return fmt.Errorf("--memory %s: %w", memory, err)
		}
		most, err := parseShare(tolerate)
		if err != nil {
			return fmt.Errorf("--tolerate %s: %w", tolerate, err)
		}
		o.Logs, o.Stdin, o.Config = args, cmd.InOrStdin(), replay.Config{File: c.config, Adapter: c.adapter}
		o.Against.Adapter = c.adapter
		shown := newProgress(cmd.ErrOrStderr())
		o.Progress = shown.show
		report, err := replay.Run(o)
		shown.end()
		if err != nil {
			return err
		}
		if html != "" {
			if err := writePage(html, replayDocument(report)); err != nil {
				return err
			}
		}
		if err := c.printReport(cmd.OutOrStdout(), report, func(w io.Writer) { writeReplay(w, report) }); err != nil {
			return err
		}
		share, zone := report.DeniedShare()
		if tolerate == "" || share <= most {
			return nil
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Zone %s denies %s of its requests, more than --tolerate %s.\n", zone, percent(share), tolerate)
		return exit(cmd, exitTolerated)
	}
	return cmd
}

// writeReplay writes a report for people.
func writeReplay(w io.Writer, r *replay.Report) {
	_, _ = fmt.Fprintf(w, "%s, %s to %s.\n", counted(int(r.Log.Requests), "request"), r.Log.From, r.Log.To)
	if r.Log.Broken > 0 {
		_, _ = fmt.Fprintf(w, "%s could not be read: %s.\n", counted(int(r.Log.Broken), "line"), strings.Join(printableAll(r.Log.First), "; "))
	}
	for i := range r.Zones {
		writeReplayedZone(w, &r.Zones[i])
	}
	if r.Against != nil {
		writeAgainst(w, r.Against)
	}
	writeNotes(w, r.Notes)
}

func writeReplayedZone(w io.Writer, z *replay.Zone) {
	denies := "denies"
	if z.Enforce == "mark" {
		denies = "marks"
	} else if z.ShadowDenied == z.Denied && z.Enforce != "on" {
		denies = "would deny"
	}
	_, _ = fmt.Fprintf(w, "\nZone %s (enforce %s) %s %d of %s: %s.\n", z.Zone, z.Enforce, denies, z.Denied, counted(int(z.Requests), "request"), percent(z.Share))
	if z.Were429 > 0 {
		_, _ = fmt.Fprintf(w, "%d of its requests were answered 429 already.\n", z.Were429)
	}
	if z.Excluded > 0 {
		_, _ = fmt.Fprintf(w, "%d requests of excluded keys are left out.\n", z.Excluded)
	}
	about := ""
	if z.Estimated {
		about = "about "
	}
	_, _ = fmt.Fprintf(w, "It has %s%s, and denies %d of them.\n", about, counted(int(z.Keys), "key"), z.Affected)
	if z.Denied == 0 {
		return
	}
	if z.Obeying < z.Denied {
		_, _ = fmt.Fprintf(w, "If clients wait as Retry-After asks, %d are denied.\n", z.Obeying)
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "LIMIT", "DENIED")
	t.right = true
	for _, l := range z.Limits {
		t.add(l.Limit, l.Denied)
	}
	if z.Others > 0 {
		t.add("without a key, by an override or by a ban", z.Others)
	}
	t.render()
	_, _ = fmt.Fprintln(w)
	t = newTable(w, "KEY", "DENIED", "REQUESTS", "SHARE", "FIRST DENIED", "LONGEST")
	t.right = true
	t.spare = []string{"SHARE"}
	for _, k := range z.Top {
		t.add(printable(k.Key), k.Denied, k.Requests, percent(k.Share), k.First, (time.Duration(k.Longest*1000) * time.Millisecond).String())
	}
	t.render()
	if hours := hoursOf(z.Hours); hours != "" {
		_, _ = fmt.Fprintf(w, "\nHours with the most denials: %s.\n", hours)
	}
}

// mostHours is how many hours a report for people names.
const mostHours = 5

// hoursOf names the hours with the most denials.
func hoursOf(hours []replay.Hour) string {
	sorted := slices.Clone(hours)
	slices.SortStableFunc(sorted, func(a, b replay.Hour) int { return cmp.Compare(b.Denied, a.Denied) })
	var names []string
	for _, h := range sorted[:min(mostHours, len(sorted))] {
		if h.Denied > 0 {
			names = append(names, fmt.Sprintf("%s %d of %d", strings.TrimSuffix(h.Start, ":00:00Z")+"h", h.Denied, h.Requests))
		}
	}
	return strings.Join(names, ", ")
}

func writeAgainst(w io.Writer, a *replay.Against) {
	_, _ = fmt.Fprintf(w, "\nThe other configuration denies %d requests, this one %d: %d newly, %d no longer.\n", a.DeniedBefore, a.DeniedNow, a.Newly, a.NoLonger)
	for _, part := range []struct {
		text string
		keys []replay.Changed
	}{
		{fmt.Sprintf("%s newly denied, %d denied more.", counted(a.NewlyKeys, "key"), a.MoreKeys), a.TopMore},
		{fmt.Sprintf("%s no longer denied, %d denied less.", counted(a.NoLongerKeys, "key"), a.LessKeys), a.TopLess},
	} {
		_, _ = fmt.Fprintln(w, part.text)
		if len(part.keys) == 0 {
			continue
		}
		t := newTable(w, "ZONE", "KEY", "DENIED BEFORE", "DENIED NOW")
		t.right = true
		t.once = []string{"ZONE"}
		for _, k := range part.keys {
			t.add(k.Zone, printable(k.Key), k.Before, k.Now)
		}
		t.render()
	}
}

func printableAll(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, printable(text))
	}
	return all
}

// percent returns a share of 1 in percent.
func percent(share float64) string {
	return page.Percent(share)
}

// parseShare reads a share, such as 0.1% or 0.001.
func parseShare(text string) (float64, error) {
	number, isPercentage := strings.CutSuffix(text, "%")
	if text == "" {
		return 0, nil
	}
	share, err := strconv.ParseFloat(number, 64)
	if isPercentage {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, errors.New("must be a share of requests, such as 0.1%")
	}
	return share, nil
}

// parseBytes reads an amount of memory, such as 2GiB.
func parseBytes(text string) (int64, error) {
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		number, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && n > 0 && n < 1<<20 {
			return int64(n * float64(int64(1)<<(10*(i+1)))), nil
		}
	}
	return 0, errors.New("must be an amount such as 500MiB or 2GiB")
}
