package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// topInterval is how often top --watch asks. Each time is a line of Caddy's log for every zone.
const topInterval = 2 * time.Second

// clearScreen has a terminal begin at its upper left corner again.
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
	cmd.Flags().StringVar(&q.Store, "store", "", "Name of the store, if several have the zone")
	cmd.Flags().StringVar(&q.By, "by", "denied", "denied, in requests, or charged, in units")
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
		if err != nil {
			return err
		}
		if !watch {
			_, err = cmd.OutOrStdout().Write(shown)
			return err
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
	body, err := c.ask(http.MethodGet, "zones", nil)
	if err != nil {
		return nil, err
	}
	var answer control.Zones
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, errAnswer
	}
	var queries []control.TopQuery
	for _, z := range answer.Zones {
		if z.TopTalkers && (q.Store == "" || q.Store == z.Store) {
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
		printTop(&output{&all, c.widthOf(out)}, &answer)
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
			return err // nobody reads it any more
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		var err error
		if shown, err = c.topText(out, queries); err != nil {
			shown = fmt.Appendln(nil, err)
			if c.json {
				_, _ = cmd.ErrOrStderr().Write(shown)
				shown = nil
			}
		}
	}
}

func printTop(w io.Writer, answer *control.Top) {
	unit, key := "requests denied", "KEY"
	if answer.By == "charged" {
		unit = "units charged"
	}
	if answer.Hashed {
		key = "HASH OF THE KEY"
	}
	_, _ = fmt.Fprintf(w, "Zone %s, %s: %d %s since %s\n\n", answer.Zone, printable(answer.Store), answer.Total, unit, answer.Since)
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
