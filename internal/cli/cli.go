// Package cli is the command `caddy sliding-window`, which asks the admin API of a running Caddy.
package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "sliding-window",
		Usage: "zones | status | inspect | reset | enforce | override | bans | ban | top | page | replay | suggest | lint",
		Short: "Shows the rate limits of the running Caddy, and unblocks clients",
		Long: `
Asks the admin endpoint of the running Caddy about its sliding_window zones.

The endpoint is the one of --address if specified; otherwise it is loaded from
the given or adjacent config file; otherwise the default is assumed.`,
		CobraFunc: func(cmd *cobra.Command) {
			own := new(command)
			cmd.Args = cobra.NoArgs // else a command that does not exist would show the help, and succeed
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			flags := cmd.PersistentFlags()
			flags.StringArrayVar(&own.addresses, "address", nil, "Address of the administration listener, if different from config; repeat it to have zones, status, inspect, bans and top ask several Caddys")
			flags.StringVarP(&own.config, "config", "c", "", "Configuration file to take the address from")
			flags.StringVarP(&own.adapter, "adapter", "a", "", "Name of config adapter to apply")
			flags.BoolVar(&own.json, "json", false, "Print the answer of the admin endpoint as JSON")
			flags.BoolVar(&own.wide, "wide", false, "Print all columns of tables on a terminal, too, as in a pipe")
			cmd.AddCommand(own.zonesCommand(), own.statusCommand(), own.inspectCommand(), own.resetCommand(), own.enforceCommand(), own.overrideCommand(), own.bansCommand(), own.banCommand(), own.topCommand(), own.pageCommand(), own.replayCommand(), own.suggestCommand(), own.lintCommand())
		},
	})
}

// command is a run of `caddy sliding-window`.
type command struct {
	addresses       []string
	config, adapter string
	json, wide      bool
	ifMatch         string // a version of overrides
}

func (c *command) zonesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "zones", Short: "Lists the zones that run", Args: cobra.NoArgs,
		Example: "  $ caddy sliding-window zones",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer control.Zones
			if c.isFleet() {
				return inFleet(c, cmd, http.MethodGet, "zones", nil, func(w io.Writer, answers []answered[control.Zones]) {
					printZones(w, fmt.Sprintf("Decisions of %d Caddys, since each started:", len(answers)), sumZones(answers), true)
				})
			}
			return c.run(cmd, http.MethodGet, "zones", nil, &answer, func(w io.Writer) {
				printZones(w, "Decisions of this Caddy, since it started:", sumZones([]answered[control.Zones]{{T: answer}}), false)
			})
		},
	}
}

func (c *command) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Shows the state of the stores", Args: cobra.NoArgs,
		Example: "  $ caddy sliding-window status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer control.Status
			if c.isFleet() {
				return inFleet(c, cmd, http.MethodGet, "status", nil, byCaddy(printStatus))
			}
			return c.run(cmd, http.MethodGet, "status", nil, &answer, func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "This Caddy:")
				printStatus(w, &answer)
			})
		},
	}
}

func (c *command) resetCommand() *cobra.Command {
	var order control.ResetOrder
	cmd := c.onCounter(&cobra.Command{
		Use: "reset", Short: "Forgets what a client has used", Args: noKey,
		Example: "  $ caddy sliding-window reset --zone per_client --key 192.0.2.1 --reason TICKET-7",
	}, func(cmd *cobra.Command, s *control.Selector) error {
		order.Selector = *s
		var answer control.Reset
		return c.run(cmd, http.MethodPost, "reset", &order, &answer, func(w io.Writer) { printReset(w, &answer) })
	})
	why(cmd, &order.Reason, &order.By, "the log")
	_ = cmd.MarkFlagRequired("zone") // the flag is there
	return cmd
}

func (c *command) enforceCommand() *cobra.Command {
	var e control.Enforce
	cmd := &cobra.Command{
		Use: "enforce <on|shadow|mark|percentage|config>", Short: "Has zones deny, mark, or only count, for a while", Args: cobra.ExactArgs(1),
		ValidArgs: []string{control.EnforceOn, control.EnforceShadow, control.EnforceMark, "config"},
		Example: `  $ caddy sliding-window enforce shadow --all --ttl 15m --reason "customers are denied since the release"
  $ caddy sliding-window enforce 25% --zone per_client --ttl 1d
  $ caddy sliding-window enforce config --all`,
	}
	cmd.Flags().StringVar(&e.Zone, "zone", "", "Name of the zone")
	_ = cmd.RegisterFlagCompletionFunc("zone", c.completeZone)
	cmd.Flags().StringVar(&e.Store, "store", "", "Name of the store, if several have the zone")
	cmd.Flags().BoolVar(&e.All, "all", false, "All zones")
	cmd.Flags().StringVar(&e.TTL, "ttl", "", "How long it holds, such as 1h")
	why(cmd, &e.Reason, &e.By, "the log")
	cmd.MarkFlagsMutuallyExclusive("zone", "all")
	cmd.MarkFlagsOneRequired("zone", "all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.Mode = args[0]
		var answer control.Enforced
		if err := c.run(cmd, http.MethodPost, "enforce", e, &answer, func(w io.Writer) { printEnforced(w, &answer) }); err != nil {
			return err
		}
		unchanged := 0
		for _, z := range answer.Zones {
			if z.Error != "" {
				unchanged++
			}
		}
		if unchanged > 0 {
			return fmt.Errorf("not changed: %d of %s", unchanged, counted(len(answer.Zones), "zone"))
		}
		return nil
	}
	return cmd
}

// why adds the flags that say who changes something, and why.
func why(cmd *cobra.Command, reason, by *string, readers string) {
	cmd.Flags().StringVar(reason, "reason", "", "Why, for "+readers)
	cmd.Flags().StringVar(by, "by", "", "Who says so; by default the address that the admin endpoint sees")
}

// onCounter adds the flags that name a counter.
func (c *command) onCounter(cmd *cobra.Command, run func(*cobra.Command, *control.Selector) error) *cobra.Command {
	var s control.Selector
	var key string
	cmd.Flags().StringVar(&s.Zone, "zone", "", "Name of the zone")
	_ = cmd.RegisterFlagCompletionFunc("zone", c.completeZone)
	cmd.Flags().StringVar(&s.Store, "store", "", "Name of the store, if several have the zone")
	cmd.Flags().StringVar(&key, "key", "", "Value of the key's placeholder; - reads it from stdin")
	cmd.Flags().StringArrayVar(&s.Values, "value", nil, "Value of one of the key's placeholders; repeat it for each, in order")
	cmd.MarkFlagsMutuallyExclusive("key", "value")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("key") {
			var err error
			if key, err = readKey(cmd.InOrStdin(), key); err != nil {
				return err
			}
			s.Key = &key
		}
		return run(cmd, &s)
	}
	return cmd
}

// noKey refuses a key without its flag. It does not quote the key.
func noKey(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errors.New("an argument has no flag; write --key before the key of a client, or --help for all flags")
	}
	return nil
}

// completeZone completes the names of running zones in a shell.
func (c *command) completeZone(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var answer control.Zones
	body, err := c.ask(http.MethodGet, "zones", nil)
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, z := range answer.Zones {
		names = append(names, z.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// readKey returns a key, or for - what is on stdin, without the end of its line: there it is in no
// history of the shell, and in no list of processes.
func readKey(stdin io.Reader, key string) (string, error) {
	if key != "-" {
		return key, nil
	}
	b, err := io.ReadAll(io.LimitReader(stdin, control.MaxBody+1))
	if err != nil {
		return "", fmt.Errorf("reading the key from stdin: %w", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

var errAnswer = errors.New("the answer of the admin endpoint is not that of sliding_window; does another version run?")

// run asks the admin endpoint, and prints the answer.
func (c *command) run(cmd *cobra.Command, method, path string, question, answer any, table func(io.Writer)) error {
	body, err := c.ask(method, path, question)
	if err != nil {
		return err
	}
	errRead := json.Unmarshal(body, answer)
	if c.json {
		_, err = cmd.OutOrStdout().Write(jsonFor(cmd.OutOrStdout(), body))
		return err
	}
	if errRead != nil {
		return errAnswer
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	table(&output{out, c.widthOf(cmd.OutOrStdout())})
	return out.Flush() // which returns all errors before
}

func (c *command) ask(method, path string, question any) ([]byte, error) {
	address, err := c.determineAddress()
	if err != nil {
		return nil, err
	}
	c.addresses = []string{address} // for what is asked later
	return askAdmin(address, method, control.Base+path, c.ifMatch, question)
}

// askAdmin asks the admin endpoint at an address. It leaves no connection behind. An empty ifMatch is
// not sent.
func askAdmin(address, method, path, ifMatch string, question any) ([]byte, error) {
	var body io.Reader
	if question != nil {
		b, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	headers := http.Header{"Connection": {"close"}}
	if ifMatch != "" {
		headers.Set("If-Match", strconv.Quote(ifMatch))
	}
	resp, err := caddycmd.AdminAPIRequest(address, method, path, headers, body)
	if err != nil {
		return nil, askError(address, err)
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// determineAddress returns the address of the admin endpoint, as `caddy reload` finds it.
func (c *command) determineAddress() (string, error) {
	switch {
	case c.isFleet():
		return "", errors.New("--address: given more than once, and this command tells one Caddy; others with the same store follow")
	case c.addresses != nil:
		return c.addresses[0], nil
	}
	config, file, _, err := caddyapi.LoadConfig(c.config, c.adapter)
	if err != nil {
		return "", fmt.Errorf("finding the admin endpoint: %w; name it with --address", err)
	}
	return caddycmd.DetermineAdminAPIAddress("", config, file, c.adapter)
}

// askError names what to do. Caddy answers 404 in plain text for paths that it does not know.
func askError(address string, err error) error {
	text := err.Error()
	_, answer, answered := strings.Cut(text, "HTTP ")
	var said struct {
		Error string `json:"error"`
	}
	_, object, _ := strings.Cut(answer, ": ")
	switch {
	case !answered:
		return fmt.Errorf("asked the admin endpoint at %s: %w; is Caddy running, and is this its admin address? name another with --address (a failed load may have moved it)", address, err)
	case json.Unmarshal([]byte(object), &said) == nil && said.Error != "":
		return inWordsOfFlags(errors.New(said.Error))
	case strings.HasPrefix(answer, "404"):
		return fmt.Errorf("asked the admin endpoint at %s: it does not know sliding_window; does Caddy run with this plugin?", address)
	}
	return fmt.Errorf("asked the admin endpoint at %s: %w", address, err)
}
