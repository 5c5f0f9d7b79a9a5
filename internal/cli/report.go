package cli

import (
	"bufio"
	"encoding/json"
	"io"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// printReport prints a report that this process has made: as JSON, or as text writes it for people.
func (c *command) printReport(to io.Writer, report any, text func(io.Writer)) error {
	if c.json {
		b, err := json.MarshalIndent(report, "", "\t")
		if err != nil {
			return err
		}
		_, err = to.Write(append(jsonFor(to, b), '\n'))
		return err
	}
	buffered := bufio.NewWriter(to)
	text(&output{buffered, c.widthOf(to)})
	return buffered.Flush() // it returns all errors before
}

// exit returns the error that ends the process with a status, without a message.
func exit(cmd *cobra.Command, status int) error {
	if status == 0 {
		return nil
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return status, nil })(cmd, nil)
}
