package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/page"
)

func (c *command) pageCommand() *cobra.Command {
	listen := "127.0.0.1:0"
	cmd := &cobra.Command{
		Use: "page", Short: "Serves a page for browsers on this machine that shows the limits live", Args: cobra.NoArgs,
		Example: `  $ caddy sliding-window page
  $ ssh -t -L 8080:127.0.0.1:8080 server caddy sliding-window page --listen 127.0.0.1:8080`,
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "Address of the loopback interface to listen at; the port 0 is any that is free")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.json || c.wide {
			return errors.New("page prints the address of a page, and no table; leave --json and --wide out")
		}
		address, err := c.determineAddress()
		if err != nil {
			return err
		}
		listener, err := page.Listen(listen)
		if err != nil {
			return fmt.Errorf("--listen %s: %w", listen, err)
		}
		p := page.New(address, func(method, path string, question any) ([]byte, error) {
			return askAdmin(address, method, path, "", question)
		})
		server := &http.Server{Handler: p, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
		defer stop()
		ended := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer ended()
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "http://%s/#%s\n", listener.Addr(), p.Token())
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "Open this address in a browser on this machine. Ctrl-C ends it.")
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	return cmd
}
