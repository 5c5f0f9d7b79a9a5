package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

func (c *command) overrideCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "override", Short: "Gives clients other limits while Caddy runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.overrideSetCommand(), c.overrideListCommand(), c.overrideDeleteCommand(), c.overrideReplaceCommand())
	return cmd
}

func (c *command) overrideSetCommand() *cobra.Command {
	var r overrides.Record
	var limits []string
	var until string
	cmd := c.onOverride(&cobra.Command{
		Use: "set", Short: "Sets the limit of a client, or of several", Args: noKey,
		Example: `  $ caddy sliding-window override set --zone per_client --key 192.0.2.1 --limit 1000/1m --ttl 2h --reason TICKET-7
  $ caddy sliding-window override set --zone chats --key anna --concurrent 20
  $ caddy sliding-window override set --zone per_client --cidr 198.51.100.0/24 --deny --ttl 1h
  $ caddy sliding-window override set --zone per_user --all --factor 0.5`,
	}, &r, func(cmd *cobra.Command) error {
		for _, text := range limits {
			l, err := parseLimit(text)
			if err != nil {
				return err
			}
			r.Limits = append(r.Limits, l)
		}
		if until != "" {
			at, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return errors.New("--until: must be a time as 2026-12-31T23:59:59Z; use --ttl for a time from now on")
			}
			r.Until = &at
		}
		var answer control.OverrideChange
		return c.run(cmd, http.MethodPost, "overrides/set", &r, &answer, func(w io.Writer) { printChange(w, "was set", &answer) })
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&limits, "limit", nil, "Limit in place of those of the zone, as 1000/1m; repeat it for several")
	flags.Int64Var(&r.Concurrent, "concurrent", 0, "Requests at the same time in place of those of the zone; alone or with --limit")
	flags.Float64Var(&r.Factor, "factor", 0, "Number by which the limits of the zone are multiplied")
	flags.BoolVar(&r.Deny, "deny", false, "Deny all requests")
	flags.BoolVar(&r.Exempt, "exempt", false, "Let all requests pass, and count none")
	flags.StringVar(&r.TTL, "ttl", "", "How long it holds, as 2h or 7d; for good if neither --ttl nor --until is given")
	flags.StringVar(&until, "until", "", "When it ends, as 2026-12-31T23:59:59Z")
	why(cmd, &r.Reason, &r.By, "those who read the list")
	cmd.MarkFlagsMutuallyExclusive("limit", "factor", "deny", "exempt")
	cmd.MarkFlagsMutuallyExclusive("concurrent", "factor", "deny", "exempt")
	cmd.MarkFlagsOneRequired("limit", "concurrent", "factor", "deny", "exempt")
	cmd.MarkFlagsMutuallyExclusive("ttl", "until")
	_ = cmd.MarkFlagRequired("zone") // the flag is there
	cmd.MarkFlagsOneRequired("key", "value", "cidr", "pattern", "all")
	return cmd
}

// parseLimit reads a limit as 1000/1m, or as a Caddyfile has it: 1000 1m.
func parseLimit(text string) (overrides.RecordLimit, error) {
	number, length, ok := strings.Cut(strings.Replace(text, " ", "/", 1), "/")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || length == "" {
		return overrides.RecordLimit{}, fmt.Errorf("--limit %q: must be a number and a window, as 1000/1m", text)
	}
	return overrides.RecordLimit{Max: n, Window: length}, nil
}

// onOverride adds the flags that select keys.
func (c *command) onOverride(cmd *cobra.Command, r *overrides.Record, run func(*cobra.Command) error) *cobra.Command {
	var key string
	flags := cmd.Flags()
	flags.StringVar(&r.Zone, "zone", "", "Name of the zone")
	_ = cmd.RegisterFlagCompletionFunc("zone", c.completeZone)
	flags.StringVar(&r.Store, "store", "", "Name of the store, if several have the zone")
	flags.StringVar(&key, "key", "", "Value of the key's placeholder; - reads it from stdin")
	flags.StringArrayVar(&r.Values, "value", nil, "Value of one of the key's placeholders; repeat it for each, in order")
	flags.StringVar(&r.CIDR, "cidr", "", "Network of addresses, as 192.0.2.0/24")
	flags.StringVar(&r.Pattern, "pattern", "", "Keys that begin or end alike, as 'customer-*' or '*.example.com'")
	flags.BoolVar(&r.All, "all", false, "All keys of the zone")
	cmd.MarkFlagsMutuallyExclusive("key", "value", "cidr", "pattern", "all")
	c.onVersion(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("key") {
			var err error
			if key, err = readKey(cmd.InOrStdin(), key); err != nil {
				return err
			}
			r.Key = &key
		}
		return run(cmd)
	}
	return cmd
}

func (c *command) onVersion(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.ifMatch, "if-match", "", "Change nothing unless the overrides have this version")
}

func (c *command) overrideListCommand() *cobra.Command {
	var filter control.OverrideFilter
	cmd := &cobra.Command{
		Use: "list", Short: "Lists the overrides that hold", Args: cobra.NoArgs,
		Example: "  $ caddy sliding-window override list --zone per_client",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer control.OverrideList
			return c.run(cmd, http.MethodPost, "overrides/list", &filter, &answer, func(w io.Writer) { printOverrides(w, &answer) })
		},
	}
	cmd.Flags().StringVar(&filter.Zone, "zone", "", "Name of a zone; all by default")
	cmd.Flags().StringVar(&filter.Store, "store", "", "Name of a store; all by default")
	return cmd
}

func (c *command) overrideDeleteCommand() *cobra.Command {
	var r overrides.Record
	cmd := c.onOverride(&cobra.Command{
		Use: "delete", Short: "Deletes an override: the limits of the zone hold again", Args: noKey,
		Example: `  $ caddy sliding-window override delete --zone per_client --key 192.0.2.1
  $ caddy sliding-window override delete --id 5f0c2b1a9d3e4f60`,
	}, &r, func(cmd *cobra.Command) error {
		var answer control.OverrideChange
		return c.run(cmd, http.MethodPost, "overrides/delete", &r, &answer, func(w io.Writer) { printChange(w, "was deleted", &answer) })
	})
	cmd.Flags().StringVar(&r.ID, "id", "", "ID of the override, as list shows it")
	why(cmd, &r.Reason, &r.By, "the log")
	cmd.MarkFlagsOneRequired("id", "zone")
	cmd.MarkFlagsMutuallyExclusive("id", "zone")
	return cmd
}

func (c *command) overrideReplaceCommand() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use: "replace <file>", Short: "Makes the overrides of a file all that a store has", Args: cobra.ExactArgs(1),
		Long: `
The file has what "override list --json" prints, or a list of overrides; - is
stdin. All overrides of the store are replaced at once.`,
		Example: `  $ caddy sliding-window override list --json > overrides.json
  $ caddy sliding-window override replace overrides.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := readOverrides(cmd.InOrStdin(), args[0], store)
			if err != nil {
				return err
			}
			var answer control.OverrideChange
			return c.run(cmd, http.MethodPost, "overrides/replace", set, &answer, func(w io.Writer) {
				printVersion(w, fmt.Sprintf("Store %s has %s now; version", answer.Store, counted(len(answer.Records), "override")), &answer)
			})
		},
	}
	cmd.Flags().StringVar(&store, "store", "", "Name of the store, if there are several")
	c.onVersion(cmd)
	return cmd
}

// readOverrides reads a list of overrides, or those of a store from what list prints.
func readOverrides(stdin io.Reader, file, store string) (*control.OverrideSet, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		stdin = f
	}
	text, err := io.ReadAll(io.LimitReader(stdin, control.MaxOverrides))
	if err != nil {
		return nil, fmt.Errorf("reading overrides: %w", err)
	}
	var list control.OverrideList
	set := &control.OverrideSet{Store: store}
	if json.Unmarshal(text, &set.Records) == nil && set.Records != nil {
		return set, nil
	}
	if json.Unmarshal(text, &list) != nil || list.Stores == nil {
		return nil, errors.New("the file holds no overrides; use what override list --json prints, or a list")
	}
	for _, s := range list.Stores {
		if s.Store == store || store == "" && len(list.Stores) == 1 {
			return &control.OverrideSet{Store: s.Store, Records: s.Records}, nil
		}
	}
	return nil, errors.New("the file has overrides of several stores, or of others; name one with --store")
}

func printOverrides(w io.Writer, answer *control.OverrideList) {
	for i, s := range answer.Stores {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		version := s.Version
		if version == "" {
			version = "none"
		}
		_, _ = fmt.Fprintf(w, "Store %s: %s, version %s.\n", s.Store, counted(len(s.Records), "override"), version)
		if s.Lost {
			_, _ = fmt.Fprintln(w, "The store has lost some of them, and does not take them back: the log has the cause. They stay in force here.")
		}
		if len(s.Records) == 0 {
			continue
		}
		t := newTable(w, "ID", "ZONE", "KEYS", "LIMIT", "UNTIL", "BY", "REASON", "NOT APPLIED")
		t.below = []string{"REASON", "NOT APPLIED", "BY"}
		for _, r := range s.Records {
			until := "for good"
			if r.Until != nil {
				until = r.Until.Format(time.RFC3339)
			}
			t.add(printable(r.ID), printable(r.Zone), keysOf(&r), printable(r.Effect()), until, printableOrNone(r.By), printableOrNone(r.Reason), printableOrNone(s.Misfits[r.ID]))
		}
		t.render()
	}
}

// keysOf says for which keys a record is.
func keysOf(r *overrides.Record) string {
	switch {
	case r.All:
		return "all"
	case r.CIDR != "":
		return printable(r.CIDR)
	case r.Pattern != "":
		return printable(r.Pattern)
	case r.Key != nil:
		return printable(*r.Key)
	case len(r.Hashes) > 0:
		return "hashed"
	}
	var values []string
	for _, value := range r.Values {
		values = append(values, printable(value))
	}
	return strings.Join(values, ", ")
}

func printChange(w io.Writer, done string, answer *control.OverrideChange) {
	for _, r := range answer.Records {
		what := done
		if before := answer.Replaced[r.ID]; before != "" {
			what = "replaced " + printable(before)
		}
		if limits := answer.InPlaceOf[r.ID]; limits != "" {
			what += ", in place of " + printable(limits)
		}
		_, _ = fmt.Fprintf(w, "Override %s of %s in zone %s (%s) %s.\n", r.ID, keysOf(&r), r.Zone, r.Effect(), what)
		if warning := answer.Warnings[r.ID]; warning != "" {
			_, _ = fmt.Fprintf(w, "Warning: %s.\n", printable(warning))
		}
	}
	printVersion(w, "Version", answer)
}

// printVersion ends with the version that overrides have after a change, and its note.
func printVersion(w io.Writer, before string, answer *control.OverrideChange) {
	text := before + " " + answer.Version
	if answer.Note != "" {
		text += "; " + answer.Note
	}
	_, _ = fmt.Fprintln(w, text+".")
}

// printOverride prints the override of an inspected key, if it has one.
func printOverride(w io.Writer, i *control.Inspection) {
	r := i.Override
	switch {
	case r == nil:
		return
	case i.Misfit != "":
		_, _ = fmt.Fprintf(w, "Override %s (%s) is not applied: %s.\n", r.ID, r.Effect(), printable(i.Misfit))
	default:
		_, _ = fmt.Fprintf(w, "Override %s (%s) holds. Reason: %s\n", r.ID, r.Effect(), printable(r.Reason))
	}
}

// overrideState says in short which overrides hold.
func overrideState(s *control.OverrideState) string {
	if s.Count == 0 && !s.Lost {
		return "none"
	}
	text := strconv.Itoa(s.Count)
	if s.Misfits > 0 {
		text += fmt.Sprintf(" (%d not applied)", s.Misfits)
	}
	text += ", version " + printable(s.Version)
	if s.Age != nil {
		text += fmt.Sprintf(", confirmed %.0f s ago", *s.Age)
	}
	if s.Lost {
		text += ", lost by the store"
	}
	return text
}
