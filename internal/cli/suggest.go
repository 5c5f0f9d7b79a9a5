package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/suggest"
)

func (c *command) suggestCommand() *cobra.Command {
	o := replay.SuggestOptions{Top: 10, Reorder: time.Minute}
	var memory, windows, html string
	var apply bool
	cmd := &cobra.Command{
		Use: "suggest <log>...", Short: "Suggests limits by an access log",
		Long: `
Finds, for each key, the most requests in any window of the log, and suggests a
pair of limits: one for bursts, and one for what goes on for long. Prints a zone
with them that only counts. Caddy does not have to run. Nothing is written but
the page of --html.

Logs are Caddy's in JSON or console format, or in the common or combined format
of nginx and Apache; plain, gzip or zstd. Several are merged; - is stdin.`,
		Example: `  $ caddy sliding-window suggest access.log
  $ caddy sliding-window suggest access.log --key header.X-Api-Key --match 'path /api/*' --window 1s,1m,1h
  $ caddy sliding-window suggest access.log --apply`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Key, "key", "client_ip", "What tells clients apart: a placeholder, or a text with placeholders, as key in a zone")
	flags.StringArrayVar(&o.Match, "match", nil, "Which requests count, as match in a zone, such as 'path /api/*'; all of several have to match")
	flags.StringVar(&windows, "window", "1s,1m,1h", "Windows to look at")
	flags.BoolVar(&o.Keys, "keys", false, "Print keys, which can be personal data, in the place of their hashes")
	flags.IntVar(&o.Top, "top", o.Top, "How many keys to print")
	flags.DurationVar(&o.Reorder, "reorder", o.Reorder, "How long a request may have taken: lines are put into the order in which their requests came")
	flags.StringVar(&memory, "memory", "2GiB", "Memory for keys and times; with more of them, figures for low limits have bounds")
	flags.StringVar(&html, "html", "", "File to write the report to as a page with plots")
	flags.BoolVar(&apply, "apply", false, "Print the zone, and the commands of the next steps, only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if o.Memory, err = parseBytes(memory); err != nil {
			return fmt.Errorf("--memory %s: %w", memory, err)
		}
		if o.Windows, err = parseWindows(windows); err != nil {
			return fmt.Errorf("--window %s: %w", windows, err)
		}
		o.Logs, o.Stdin = args, cmd.InOrStdin()
		shown := newProgress(cmd.ErrOrStderr())
		o.Progress = shown.show
		s, err := replay.Suggest(o)
		shown.end()
		if err != nil {
			return err
		}
		if html != "" {
			if err := writePage(html, suggestionDocument(s)); err != nil {
				return err
			}
		}
		return c.printReport(cmd.OutOrStdout(), s, func(w io.Writer) {
			if apply {
				writeSteps(w, s, args)
			} else {
				writeSuggestion(w, s)
			}
		})
	}
	return cmd
}

// parseWindows reads a list of windows, such as 1s,1m,1h.
func parseWindows(text string) (all []time.Duration, err error) {
	for word := range strings.SplitSeq(text, ",") {
		d, err := caddy.ParseDuration(strings.TrimSpace(word))
		if err != nil || d < time.Millisecond {
			return nil, fmt.Errorf("%q is not a duration, such as 1m", word)
		}
		all = append(all, d)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// writeSuggestion writes a suggestion for people.
func writeSuggestion(w io.Writer, s *replay.Suggestion) {
	_, _ = fmt.Fprintf(w, "%s of %s by %s, %s to %s.\n", counted(s.Requests, "request"), counted(s.Keys, "key"), printable(s.Key), s.Log.From, s.Log.To)
	if s.Log.Broken > 0 {
		_, _ = fmt.Fprintf(w, "%s could not be read: %s.\n", counted(s.Log.Broken, "line"), strings.Join(printableAll(s.Log.First), "; "))
	}
	if s.Requests == 0 {
		return
	}
	_, _ = fmt.Fprint(w, "\nThe most requests of a key in any window, the peak:\n\n")
	t := newTable(w, "WINDOW", "OF", "P50", "P90", "P99", "P99.9", "MAX")
	t.right = true
	for _, window := range s.Windows {
		for _, p := range []struct {
			of string
			suggest.Percentiles
		}{{"keys", window.ByKey}, {"requests", window.ByRequest}} {
			t.add(window.Text, p.of, p.P50, p.P90, p.P99, p.P999, p.Max)
		}
	}
	t.render()
	_, _ = fmt.Fprint(w, "\nWhat a limit would deny, in requests and in keys:\n\n")
	writeCurves(w, s.Windows)
	if len(s.Top) > 0 {
		_, _ = fmt.Fprint(w, "\nKeys that the limits below deny most:\n\n")
		header := []string{"KEY", "DENIED", "REQUESTS"}
		for _, window := range s.Windows {
			header = append(header, "PEAK IN "+strings.ToUpper(window.Text))
		}
		t = newTable(w, header...)
		t.right = true
		for _, k := range s.Top {
			row := []any{printable(k.Key), k.Denied, k.Requests}
			for _, peak := range k.Peaks {
				row = append(row, peak)
			}
			t.add(row...)
		}
		t.render()
	}
	var pair []string
	for _, l := range s.Pair {
		pair = append(pair, fmt.Sprintf("%d in %s", l.Limit, l.Text))
	}
	_, _ = fmt.Fprintf(w, "\nSuggested: %s. Denied: %s (%s) of %s.\n\n%s", strings.Join(pair, " and "),
		counted(s.Denied.Requests, "request"), percent(float64(s.Denied.Requests)/float64(s.Requests)), counted(s.Denied.Keys, "key"), s.Zone)
	writeNotes(w, s.Notes)
}

// writeCurves writes the curves of all windows beside each other.
func writeCurves(w io.Writer, windows []suggest.Window) {
	var header []string
	rows := 0
	for _, window := range windows {
		header = append(header, "IN "+strings.ToUpper(window.Text), "DENIED", "KEYS")
		rows = max(rows, len(window.Curve))
	}
	t := newTable(w, header...)
	t.right = true
	for i := range rows {
		var row []any
		for _, window := range windows {
			if i >= len(window.Curve) {
				row = append(row, "", "", "")
				continue
			}
			p := window.Curve[i]
			row = append(row, p.Limit, p.Requests, p.Keys)
		}
		t.add(row...)
	}
	t.render()
}

// writeSteps writes the zone, and the commands that lead from it to one that denies.
func writeSteps(w io.Writer, s *replay.Suggestion, logs []string) {
	_, _ = fmt.Fprintf(w, `# 1. Put this into the site, and reload Caddy. It counts, and denies no request.
%s
# 2. See what it would deny: in the log of today, and after a week in a newer one.
caddy sliding-window replay %s --config Caddyfile --zone %s --tolerate 0.1%%
caddy sliding-window zones

# 3. Let clients pass that have to: monitors, offices behind one address.
caddy sliding-window override set --zone %[3]s --key <key> --exempt --ttl 30d

# 4. Deny, for a quarter of the keys and then for all.
caddy sliding-window enforce 25%% --zone %[3]s --ttl 1d
caddy sliding-window enforce on --zone %[3]s --ttl 1d

# 5. Take enforce shadow out of the zone, and reload Caddy.
`, s.Zone, strings.Join(logs, " "), s.Name)
}

// writeNotes writes what the reader of figures has to know.
func writeNotes(w io.Writer, notes []string) {
	if len(notes) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nMind:")
	for _, note := range notes {
		_, _ = fmt.Fprintf(w, "- %s.\n", note)
	}
}
