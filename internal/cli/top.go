package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// topInterval is how often top --watch asks. Each time is a line of Caddy's log for every zone.
const topInterval = 2 * time.Second

// clearScreen clears a terminal and moves the cursor to its upper left corner.
const clearScreen = "\x1b[H\x1b[2J"

func (c *command) topCommand() *cobra.Command {
	var q control.TopQuery
	var watch bool
	count := 10
	cmd := &cobra.Command{
		Use: "top", Short: "Shows which clients are denied or charged most, in zones with top_talkers", Args: cobra.NoArgs,
		Example: `  $ caddy sliding-window top --zone per_client
  $ caddy sliding-window top --by charged --count 20 --watch`,
	}
	cmd.Flags().StringVar(&q.Zone, "zone", "", "Name of the zone; without it, all zones with top_talkers")
	_ = cmd.RegisterFlagCompletionFunc("zone", c.completeZone)
	cmd.Flags().StringVar(&q.Store, "store", "", "Name of the store, if several have the zone")
	cmd.Flags().StringVar(&q.By, "by", "denied", "denied, in requests, or charged, in units")
	cmd.Flags().StringVar(&q.Tier, "tier", "", "Networks of a tier in place of addresses, such as 24/48")
	cmd.Flags().IntVar(&count, "count", count, "How many clients")
	cmd.Flags().BoolVar(&watch, "watch", false, "Show it again every 2 s, until it is interrupted")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"denied", "charged"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q.Count = &count
		queries, err := c.topQueries(q)
		if err != nil {
			return err
		}
		shown, err := c.topText(cmd.OutOrStdout(), queries)
		if !watch || shown == nil && err != nil {
			_, errWrite := cmd.OutOrStdout().Write(shown)
			return cmp.Or(errWrite, err)
		}
		return c.watchTop(cmd, queries, shown)
	}
	return cmd
}

// topQueries returns a query for each zone that is meant.
func (c *command) topQueries(q control.TopQuery) ([]control.TopQuery, error) {
	if q.Zone != "" {
		return []control.TopQuery{q}, nil
	}
	var answers []answered[control.Zones]
	if c.isFleet() {
		replies := c.askAll(http.MethodGet, "zones", nil)
		if answers = read[control.Zones](replies); answers == nil {
			return nil, without(replies)
		}
	} else {
		body, err := c.ask(http.MethodGet, "zones", nil)
		if err != nil {
			return nil, err
		}
		answers = make([]answered[control.Zones], 1)
		if err := json.Unmarshal(body, &answers[0].T); err != nil {
			return nil, errAnswer
		}
	}
	var queries []control.TopQuery
	for _, z := range sumZones(answers) {
		isThere := slices.ContainsFunc(queries, func(other control.TopQuery) bool { return other.Zone == z.Name && other.Store == z.Store })
		hasTier := q.Tier == "" || slices.ContainsFunc(z.Limits, func(l control.LimitInfo) bool { return l.Tier == q.Tier })
		if z.TopTalkers && !isThere && hasTier && (q.Store == "" || q.Store == z.Store) {
			q := q
			q.Zone, q.Store = z.Name, z.Store
			queries = append(queries, q)
		}
	}
	if queries == nil {
		return nil, errors.New("no zone keeps top talkers; write top_talkers in a zone")
	}
	return queries, nil
}

// topText returns what the queries find, as tables or as lines of JSON, for out.
func (c *command) topText(out io.Writer, queries []control.TopQuery) ([]byte, error) {
	if c.isFleet() {
		return c.fleetTop(out, queries)
	}
	var all bytes.Buffer
	for i, q := range queries {
		body, err := c.ask(http.MethodPost, "top", q)
		if err != nil {
			return nil, err
		}
		if c.json {
			all.Write(jsonFor(out, body))
			continue
		}
		var answer control.Top
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, errAnswer
		}
		if i > 0 {
			all.WriteByte('\n')
		}
		printTop(&output{&all, c.widthOf(out)}, "this Caddy", &answer)
	}
	return all.Bytes(), nil
}

// watchTop shows what was found, and what the queries find after that, until it is interrupted. A Caddy that
// does not answer in between is shown, too.
func (c *command) watchTop(cmd *cobra.Command, queries []control.TopQuery, shown []byte) error {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, stop := signal.NotifyContext(parent, os.Interrupt)
	defer stop()
	ticker := time.NewTicker(topInterval)
	defer ticker.Stop()
	out := cmd.OutOrStdout()
	for {
		switch {
		case c.json:
		case isTerminal(out):
			_, _ = io.WriteString(out, clearScreen)
		default:
			_, _ = io.WriteString(out, "\n")
		}
		if _, err := out.Write(shown); err != nil {
			return err // the reader is gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		var err error
		if shown, err = c.topText(out, queries); err != nil && c.json {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), err)
		} else if err != nil {
			shown = fmt.Appendln(shown, err)
		}
	}
}

// fleetTop is topText for several Caddys: their keys together, and an error that names those that do not answer.
func (c *command) fleetTop(out io.Writer, queries []control.TopQuery) ([]byte, error) {
	var all bytes.Buffer
	var failed error
	for i, q := range queries {
		count := *q.Count
		if count >= 1 && count <= control.MaxTop { // else they refuse it
			most := control.MaxTop
			q.Count = &most
		}
		replies := c.askAll(http.MethodPost, "top", q)
		answers := read[control.Top](replies)
		failed = cmp.Or(failed, without(replies))
		if c.json {
			all.Write(jsonFor(out, linesOf(replies)))
			continue
		}
		if answers == nil {
			continue
		}
		if i > 0 {
			all.WriteByte('\n')
		}
		merged := mergeTop(answers, count)
		printTop(&output{&all, c.widthOf(out)}, fmt.Sprintf("%d Caddys", len(answers)), &merged)
	}
	return all.Bytes(), failed
}

// printTop prints the keys that one Caddy or several have denied or charged most.
func printTop(w io.Writer, of string, answer *control.Top) {
	total, key := counted(answer.Total, "request")+" denied", "KEY"
	if answer.By == "charged" {
		total = counted(answer.Total, "unit") + " charged"
	}
	if answer.Hashed {
		key = "HASH OF THE KEY"
	}
	zone := answer.Zone
	if answer.Tier != "" {
		zone += ", tier " + answer.Tier
	}
	_, _ = fmt.Fprintf(w, "Zone %s, %s, %s: %s since %s\n\n", zone, printable(answer.Store), of, total, answer.Since)
	if len(answer.Keys) == 0 {
		return
	}
	t := newTable(w, key, "COUNT", "ERROR", "SHARE")
	t.right = true
	for _, k := range answer.Keys {
		name := printable(k.Key)
		if k.Cut {
			name += "…"
		}
		t.add(name, k.Count, k.Error, fmt.Sprintf("%.1f%%", 100*float64(k.Count-k.Error)/float64(max(1, answer.Total))))
	}
	t.render()
}
