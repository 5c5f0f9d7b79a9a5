package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// ofRequest are the flags of inspect that describe a request.
var ofRequest = []string{"url", "method", "header", "remote", "server"}

func (c *command) inspectCommand() *cobra.Command {
	var example control.ExampleRequest
	var fields []string
	var byKey func(*cobra.Command, []string) error
	cmd := c.onCounter(&cobra.Command{
		Use: "inspect", Short: "Shows what the next request of a client meets, and spends nothing", Args: noKey,
		Example: `  $ caddy sliding-window inspect --zone per_client --key 192.0.2.1
  $ caddy sliding-window inspect --zone per_user --value acme --value anna
  $ pass show anna/token | caddy sliding-window inspect --zone per_token --key -
  $ caddy sliding-window inspect --url https://example.com/login --method POST --header 'X-Api-Key: b7e1c0d2' --remote 192.0.2.1`,
	}, func(cmd *cobra.Command, s *control.Selector) error {
		if c.isFleet() {
			return inFleet(c, cmd, http.MethodPost, "inspect", s, byCaddy(printInspection))
		}
		var answer control.Inspection
		return c.run(cmd, http.MethodPost, "inspect", s, &answer, func(w io.Writer) { printInspection(w, &answer) })
	})
	flags := cmd.Flags()
	flags.StringVar(&example.URI, "url", "", "URL of a request, as the client has it: shows all zones that count such a request")
	flags.StringVar(&example.Method, "method", "", "Method of the request (default GET)")
	flags.StringArrayVar(&fields, "header", nil, "Field of the request's header, as 'X-Api-Key: anna'; repeat it for several; - reads such lines from stdin")
	flags.StringVar(&example.Remote, "remote", "", "Address that the connection of the request comes from")
	flags.StringVar(&example.Server, "server", "", "Name of the server in Caddy's JSON, if several listen on the port of the URL")
	byKey = cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		isOfRequest := func(name string) bool { return cmd.Flags().Changed(name) }
		if !slices.ContainsFunc(ofRequest, isOfRequest) {
			if !isOfRequest("zone") {
				return errors.New("--zone: required, with --key or --value; or ask with a request: --url and --remote")
			}
			return byKey(cmd, args)
		}
		for _, name := range []string{"zone", "store", "key", "value"} {
			if isOfRequest(name) {
				return fmt.Errorf("--%s: cannot be combined with --url, --method, --header, --remote and --server: a request tells its zones and keys; leave --%[1]s out", name)
			}
		}
		for _, name := range []string{"url", "remote"} {
			if !isOfRequest(name) {
				return fmt.Errorf("--%s: required for a request; write %s", name, map[string]string{"url": "--url https://example.com/path", "remote": "--remote with the address that the connection comes from"}[name])
			}
		}
		var err error
		if example.Headers, err = readFields(cmd.InOrStdin(), fields); err != nil {
			return err
		}
		if _, err := example.HTTP(context.Background()); err != nil {
			return inWordsOfFlags(err)
		}
		question := control.Selector{Request: &example}
		show := func(w io.Writer, answer *control.RequestInspection) { printRequestInspection(w, &example, answer) }
		if c.isFleet() {
			return inFleet(c, cmd, http.MethodPost, "inspect", question, byCaddy(show))
		}
		var answer control.RequestInspection
		return c.run(cmd, http.MethodPost, "inspect", question, &answer, func(w io.Writer) { show(w, &answer) })
	}
	return cmd
}

// readFields reads fields of a header, as curl takes them. Its errors do not quote values.
func readFields(stdin io.Reader, lines []string) (control.Fields, error) {
	fields := make(control.Fields)
	for _, line := range lines {
		text, err := readKey(stdin, line)
		if err != nil {
			return nil, err
		}
		for field := range strings.Lines(text) {
			field = strings.TrimRight(field, "\r\n")
			name, value, ok := strings.Cut(field, ":")
			if name = strings.TrimSpace(name); !ok || name == "" {
				return nil, errors.New("--header: must be a name, a colon and a value, as 'X-Api-Key: anna'")
			}
			fields[name] = append(fields[name], strings.TrimSpace(value))
		}
	}
	return fields, nil
}

func printInspection(w io.Writer, i *control.Inspection) {
	costs := ""
	if i.Cost != nil {
		costs = fmt.Sprintf(", which costs %d,", *i.Cost)
	}
	of := fmt.Sprintf("The next request of %s in zone %s%s", printable(i.Key), i.Zone, costs)
	switch {
	case i.WouldPass == nil:
		_, _ = fmt.Fprintf(w, "Whether the next request of %s in zone %s%s passes cannot be said: %s.\n", printable(i.Key), i.Zone, costs, needed(i.NeedsRequest))
		_, _ = fmt.Fprintln(w, "Ask with one: caddy sliding-window inspect --url … --header … --remote …")
	case i.Passes():
		_, _ = fmt.Fprintln(w, of+" would pass.")
	default:
		_, _ = fmt.Fprintln(w, of+" would be denied.")
	}
	_, _ = fmt.Fprintf(w, "Decided by %s; store %s is %s.\n", i.DecidedBy, i.Store.Name, storeState(i.Store))
	if i.RedisKey != "" {
		_, _ = fmt.Fprintf(w, "Redis key: %s\n", printable(i.RedisKey))
	}
	if i.Enforce != control.EnforceOn {
		_, _ = fmt.Fprintf(w, "Enforced: %s.\n", i.Enforce)
	}
	if i.Ban != nil {
		_, _ = fmt.Fprintf(w, "The key is banned until %s, for %s.\n", i.Ban.Until, inSeconds(i.Ban.Left))
	}
	printOverride(w, i)
	for _, t := range i.Tiers {
		printOverride(w, ofNetwork(i, &t))
	}
	_, _ = fmt.Fprintln(w)
	rows := limitRows(i)
	if len(rows) == 0 {
		return
	}
	t := newTable(w, "LIMIT", "USED", "REMAINING", "RETRY AFTER", "RESET AFTER", "SOURCE")
	for _, row := range rows {
		t.add(row...)
	}
	t.render()
	printHolders(w, i.Concurrent)
}

// printHolders prints which Caddys hold requests of a key.
func printHolders(w io.Writer, c *control.HeldState) {
	if c == nil || len(c.Holders) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "CADDY", "HOLDS", "FOR", "HEARD OF")
	for _, h := range c.Holders {
		t.add(cmp.Or(printableOrNone(h.Name), "this one"), h.Held, inSeconds(h.Age), inSeconds(h.Silent)+" ago")
	}
	t.render()
}

// needed says what needs a request.
func needed(n *control.NeedsRequest) string {
	if n == nil {
		return "a part needs a request"
	}
	var parts []string
	for _, l := range n.Limits {
		parts = append(parts, "the limit "+l.String())
	}
	switch n.Cost {
	case "":
	case control.CostOfBody:
		parts = append(parts, "the cost, which the body tells,")
	default:
		parts = append(parts, "the cost "+n.Cost)
	}
	if len(parts) == 1 {
		return parts[0] + " needs a request"
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1] + " need a request"
}

// limitRows returns a row for each limit of an inspection.
func limitRows(i *control.Inspection) (rows [][]any) {
	for _, l := range i.Limits {
		retry := "never"
		switch {
		case i.Cost == nil:
			retry = ""
		case l.RetryAfter != nil:
			retry = inSeconds(*l.RetryAfter)
		}
		rows = append(rows, []any{ofTier(fmt.Sprintf("%d in %s", l.Max, l.Window), i), l.Used, l.Remaining, retry, inSeconds(l.ResetAfter), l.Source})
	}
	if c := i.Concurrent; c != nil {
		rows = append(rows, []any{fmt.Sprintf("%d at the same time", c.Max), c.Held, c.Remaining, "", "", c.Source})
	}
	if i.Tier != "" && rows == nil { // an override decides
		rows = append(rows, []any{ofTier(i.Override.Effect(), i), "", "", "", "", control.SourceOverride})
	}
	if i.NeedsRequest != nil {
		rows = append(rows, neededRows(i.NeedsRequest)...)
	}
	for _, t := range i.Tiers {
		rows = append(rows, limitRows(ofNetwork(i, &t))...)
	}
	return rows
}

// ofNetwork returns the inspection of the network of a tier.
func ofNetwork(i *control.Inspection, t *control.TierInspection) *control.Inspection {
	return &control.Inspection{Key: t.Key, Tier: t.Tier, Limits: t.Limits, Cost: i.Cost, Override: t.Override, Misfit: t.Misfit}
}

// ofTier returns the text of a limit, with the network and the tier that it is of.
func ofTier(limit string, i *control.Inspection) string {
	if i.Tier == "" {
		return limit
	}
	return fmt.Sprintf("%s, %s (tier %s)", limit, printable(i.Key), i.Tier)
}

// neededRows returns a row for each limit that needs a request.
func neededRows(n *control.NeedsRequest) (rows [][]any) {
	for _, l := range n.Limits {
		used, reset := any(""), ""
		if l.Used != nil {
			used, reset = *l.Used, inSeconds(*l.ResetAfter)
		}
		rows = append(rows, []any{l.String(), used, "", "", reset, "needs a request"})
	}
	return rows
}

func printRequestInspection(w io.Writer, example *control.ExampleRequest, answer *control.RequestInspection) {
	var unknown, denying []string
	for _, z := range answer.Zones {
		switch {
		case z.Shadow:
		case z.Unknown != nil:
			unknown = append(unknown, fmt.Sprintf("zone %s needs %s", z.Zone, strings.Join(z.Unknown, ", ")))
		case z.EmptyKey != "" || z.Inspection != nil && !z.Passes():
			denying = append(denying, z.Zone)
		}
	}
	method := example.Method
	if method == "" {
		method = http.MethodGet
	}
	request := fmt.Sprintf("%s %s from %s", printable(method), printable(example.URI), printable(example.Remote))
	switch {
	case answer.WouldPass == nil:
		_, _ = fmt.Fprintf(w, "Whether %s passes cannot be said: %s.\n", request, strings.Join(unknown, "; "))
	case *answer.WouldPass && len(answer.Zones) == 0:
		_, _ = fmt.Fprintf(w, "%s would pass: no zone counts it.\n", request)
	case *answer.WouldPass:
		_, _ = fmt.Fprintf(w, "%s would pass.\n", request)
	default:
		_, _ = fmt.Fprintf(w, "%s would be denied by zone %s.\n", request, strings.Join(denying, ", "))
	}
	if answer.NotRun != nil {
		_, _ = fmt.Fprintf(w, "Not run, and taken to let it pass: %s.\n", strings.Join(answer.NotRun, ", "))
	}
	if answer.Unknown != nil {
		_, _ = fmt.Fprintf(w, "Decides on the way, and is not known here: %s.\n", strings.Join(answer.Unknown, ", "))
	}
	if len(answer.Zones) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "ZONE", "DECISION", "KEY", "COST", "LIMIT", "USED", "REMAINING", "RETRY AFTER", "RESET AFTER", "SOURCE")
	t.once, t.below = []string{"DECISION", "KEY", "COST", "SOURCE"}, []string{"KEY", "COST", "SOURCE"}
	t.spare = []string{"RESET AFTER"}
	for _, z := range answer.Zones {
		for _, row := range zoneRows(&z) {
			t.add(row...)
		}
	}
	t.render()
}

// zoneRows returns a row for each limit of a zone that a request meets, or one row.
func zoneRows(z *control.EvaluatedZone) (rows [][]any) {
	decision := "would pass"
	switch {
	case z.Unknown != nil:
		return [][]any{{z.Zone, "needs " + strings.Join(z.Unknown, ", "), "", "", "", "", "", "", "", ""}}
	case z.EmptyKey != "":
		decision = "would be denied, as the key is empty"
	case z.Inspection != nil && z.Ban != nil:
		decision = "would be denied, as the key is banned"
	case z.Inspection != nil && !z.Passes():
		decision = "would be denied"
	}
	switch {
	case z.Inspection != nil && z.Enforce == control.EnforceMark:
		decision += " (mark)"
	case z.Shadow:
		decision += " (shadow)"
	}
	if z.Inspection == nil {
		return [][]any{{z.Zone, decision, "", "", "", "", "", "", "", ""}}
	}
	first := []any{z.Zone, decision, printable(z.Key), *z.Cost}
	for _, row := range limitRows(z.Inspection) {
		rows = append(rows, append(slices.Clone(first), row...))
	}
	if rows == nil { // an override decides
		rows = append(rows, append(first, z.Override.Effect(), "", "", "", "", control.SourceOverride))
	}
	return rows
}
