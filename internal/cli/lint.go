package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
)

// exitFindings is the exit status if there are errors among the findings.
const exitFindings = 3

func (c *command) lintCommand() *cobra.Command {
	var logs []string
	cmd := &cobra.Command{
		Use: "lint", Short: "Finds mistakes in the limits of a configuration that loads", Args: cobra.NoArgs,
		Long: `
Loads the configuration without starting it, and prints what is most likely a mistake in its
limits: where, why, and what to write. It asks no server, and writes nothing.

The exit status is 1 if the configuration does not load, and 3 if there is an error among the
findings. A comment "# lint:ignore <code> <reason>" in the line or above it hides a finding.`,
		Example: `  $ caddy sliding-window lint --config /etc/caddy/Caddyfile
  $ caddy sliding-window lint --config /etc/caddy/Caddyfile --log access.log --json`,
	}
	cmd.Flags().StringArrayVar(&logs, "log", nil, "Access log for the rules that look at requests; repeat it for several")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var report *lint.Report
		if err := c.lint(&report, logs); err != nil {
			return err
		}
		if err := c.printReport(cmd.OutOrStdout(), report, func(w io.Writer) { writeFindings(w, report) }); err != nil {
			return err
		}
		return exit(cmd, exitStatus(report))
	}
	return cmd
}

func exitStatus(r *lint.Report) int {
	if r.Errors > 0 {
		return exitFindings
	}
	return 0
}

// lint makes the report on the configuration of the flags.
func (c *command) lint(report **lint.Report, logs []string) error {
	config, file, adapter, err := caddyapi.LoadConfig(c.config, c.adapter)
	if err != nil {
		return err
	}
	if file == "" {
		return errors.New("there is no Caddyfile in this directory; name the configuration with --config")
	}
	var source *written.Source
	if adapter == "caddyfile" && file != "-" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if source, err = written.Read(file, text); err != nil {
			return err
		}
	}
	checked, closeAll, err := lint.Load(config)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer closeAll()
	if logs != nil {
		if err := checked.ReadLogs(file, config, logs); err != nil {
			return err
		}
	}
	*report = lint.Check(checked, source)
	return nil
}

// writeFindings writes findings for people.
func writeFindings(w io.Writer, r *lint.Report) {
	for _, f := range r.Findings {
		printFinding(w, &f)
	}
	if len(r.Findings) == 0 {
		_, _ = fmt.Fprintln(w, "No finding.")
		return
	}
	_, _ = fmt.Fprintf(w, "%s, %s, %s.\n", counted(r.Errors, "error"), counted(r.Warnings, "warning"), counted(r.Notes, "note"))
}

func printFinding(w io.Writer, f *lint.Finding) {
	at := ""
	if f.File != "" {
		at = fmt.Sprintf("%s:%d: ", f.File, f.Line)
	}
	zone := ""
	if f.Zone != "" {
		zone = "zone " + f.Zone + ": "
	}
	_, _ = fmt.Fprintf(w, "%s%s %s: %s%s\n", at, f.Severity, f.Code, zone, f.What)
	_, _ = fmt.Fprintf(w, "Why: %s.\n", strings.TrimSuffix(f.Cause, "."))
	_, _ = fmt.Fprintf(w, "Do: %s.\n%s\n\n", strings.TrimSuffix(f.Cure, "."), f.Link)
}
