package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func (c *command) bansCommand() *cobra.Command {
	var zone, store, format string
	var shadow bool
	cmd := &cobra.Command{
		Use: "bans", Short: "Lists who is banned", Args: cobra.NoArgs,
		Long: `
The formats text, nft and ipset list the addresses of one zone: one a line, as
"nft -f -" and as "ipset -exist restore" read them.`,
		Example: `  $ caddy sliding-window bans --zone logins
  $ caddy sliding-window bans --zone logins --format nft | nft -f -`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		query := url.Values{}
		for name, value := range map[string]string{"zone": zone, "store": store} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if shadow {
			query.Set("shadow", "")
		}
		if format == "json" {
			c.json = true
		}
		if format != "table" && !c.json {
			query.Set("format", format)
			body, err := c.ask(http.MethodGet, "bans?"+query.Encode(), nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(body)
			}
			return err
		}
		path := "bans?" + query.Encode()
		if c.isFleet() {
			return inFleet(c, cmd, http.MethodGet, path, nil, byCaddy(printBanList))
		}
		var answer control.BanList
		return c.run(cmd, http.MethodGet, path, nil, &answer, func(w io.Writer) { printBanList(w, &answer) })
	}
	flags := cmd.Flags()
	flags.StringVar(&zone, "zone", "", "Name of a zone; all by default")
	_ = cmd.RegisterFlagCompletionFunc("zone", c.completeZone)
	flags.StringVar(&store, "store", "", "Name of a store; all by default")
	flags.BoolVar(&shadow, "shadow", false, "Show bans that deny nothing, too, of zones that do not deny")
	flags.StringVar(&format, "format", "table", "table, json, text, nft or ipset")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(append([]string{"table"}, control.BanFormats...), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *command) banCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ban", Short: "Bans a client for a time, or lifts bans", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.banSetCommand(), c.banLiftCommand())
	return cmd
}

func (c *command) banSetCommand() *cobra.Command {
	var o control.BanOrder
	cmd := c.onCounter(&cobra.Command{
		Use: "set", Short: "Bans a client or a network for a time, in a zone with ban", Args: noKey,
		Example: `  $ caddy sliding-window ban set --zone logins --key 192.0.2.1 --ttl 1h --reason TICKET-7
  $ caddy sliding-window ban set --zone logins --cidr 198.51.100.0/24 --ttl 1d`,
	}, func(cmd *cobra.Command, s *control.Selector) error {
		o.Selector = *s
		return c.changeBans(cmd, "bans/set", &o, "banned")
	})
	onBan(cmd, &o.CIDR, &o.Why)
	cmd.Flags().StringVar(&o.TTL, "ttl", "", "How long it holds, such as 1h; by default as long as the first ban of the zone")
	_ = cmd.MarkFlagRequired("zone") // the flag is there
	cmd.MarkFlagsOneRequired("key", "value", "cidr")
	return cmd
}

func (c *command) banLiftCommand() *cobra.Command {
	var o control.LiftOrder
	cmd := c.onCounter(&cobra.Command{
		Use: "lift", Short: "Lifts bans of clients, of a network, of a zone or since a time", Args: noKey,
		Long: `
Flags together narrow what is lifted: --zone logins --since 14:00 lifts the bans
of this zone that began at 14:00 today or later.`,
		Example: `  $ caddy sliding-window ban lift --zone logins --key 192.0.2.1 --reason TICKET-7
  $ caddy sliding-window ban lift --cidr 198.51.100.0/24
  $ caddy sliding-window ban lift --zone logins --all
  $ caddy sliding-window ban lift --since 14:00 --reason "the release of 14:00 broke log-ins"`,
	}, func(cmd *cobra.Command, s *control.Selector) error {
		o.Selector = *s
		if strings.Contains(o.Since, ":") { // a time of today is one where the operator is
			at, err := control.ParseSince(o.Since, time.Now())
			if err != nil {
				return inWordsOfFlags(err)
			}
			o.Since = at.Format(time.RFC3339Nano)
		}
		return c.changeBans(cmd, "bans/lift", &o, "no longer banned")
	})
	onBan(cmd, &o.CIDR, &o.Why)
	cmd.Flags().BoolVar(&o.All, "all", false, "All bans of the zone")
	cmd.Flags().StringVar(&o.Since, "since", "", "Bans that began then or later: 14:00, 30m for half an hour ago, or 2026-12-31T14:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("key", "value", "cidr", "all")
	cmd.MarkFlagsOneRequired("key", "value", "cidr", "all", "since")
	return cmd
}

// onBan adds the flags of all that changes bans.
func onBan(cmd *cobra.Command, cidr *string, w *control.Why) {
	cmd.Flags().StringVar(cidr, "cidr", "", "Network of addresses, as 192.0.2.0/24")
	cmd.MarkFlagsMutuallyExclusive("key", "value", "cidr")
	why(cmd, &w.Reason, &w.By, "the list and the log")
}

// mostBans is how many bans a change names.
const mostBans = 10

func (c *command) changeBans(cmd *cobra.Command, path string, order any, done string) error {
	var answer control.BanChange
	return c.run(cmd, http.MethodPost, path, order, &answer, func(w io.Writer) {
		for i := range answer.Bans[:min(len(answer.Bans), mostBans)] {
			b := &answer.Bans[i]
			until := ""
			if path == "bans/set" {
				until = " until " + b.Until.Format(time.RFC3339)
			}
			_, _ = fmt.Fprintf(w, "%s in zone %s is %s%s.\n", keyOfBan(b), printable(b.Zone), done, until)
		}
		if more := len(answer.Bans) - mostBans; more > 0 {
			_, _ = fmt.Fprintf(w, "So are %d others: %s in all.\n", more, counted(len(answer.Bans), "key"))
		}
		if answer.Warning != "" {
			_, _ = fmt.Fprintf(w, "Warning: %s.\n", inWordsOfFlags(fmt.Errorf("%s", printable(answer.Warning))))
		}
		if answer.Note != "" {
			_, _ = fmt.Fprintln(w, strings.ToUpper(answer.Note[:1])+answer.Note[1:]+".")
		}
	})
}

func printBanList(w io.Writer, answer *control.BanList) {
	for i, s := range answer.Stores {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "Store %s: %s.\n", s.Store.Name, counted(s.Count, "ban"))
		if s.Store.State != control.StateOK {
			_, _ = fmt.Fprintf(w, "The store is %s. These are the bans that this Caddy knows.\n", storeState(s.Store))
		}
		if len(s.Bans) == 0 {
			continue
		}
		t := newTable(w, "ZONE", "KEY", "LEFT", "UNTIL", "LEVEL", "BEGAN", "SHADOW", "BY", "REASON")
		t.below = []string{"REASON", "BY"}
		for i := range s.Bans {
			b := &s.Bans[i]
			shadow := ""
			if b.Shadow {
				shadow = "denies nothing"
			}
			left := (time.Duration(b.Left) * time.Second).String()
			t.add(printable(b.Zone), keyOfBan(b), left, b.Until.Format(time.RFC3339), b.Level, b.Began.Format(time.RFC3339), shadow, printableOrNone(b.By), printableOrNone(b.Reason))
		}
		t.render()
	}
}

func keyOfBan(b *control.Ban) string {
	switch {
	case b.CIDR != "":
		return printable(b.CIDR)
	case b.KeyHash != "":
		return printable(b.KeyHash)
	case b.Key != nil:
		return printable(*b.Key)
	}
	return ""
}

// printBans prints how many bans of each zone are in force.
func printBans(w io.Writer, bans []control.ZoneBans) {
	if len(bans) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ZONE", "STORE", "BANS")
	for _, b := range bans {
		t.add(b.Zone, b.Store, b.Bans)
	}
	t.render()
}
