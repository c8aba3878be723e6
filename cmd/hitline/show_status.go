package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/hitline/internal/status"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/client"
)

const (
	// defaultMetrics is where status asks if neither an address nor a configuration says so.
	defaultMetrics = "127.0.0.1:9557"
	// maxStatusBytes bounds a reply to /status.
	maxStatusBytes = 64 << 20
	// minStatusInterval keeps one who looks from asking without a pause.
	minStatusInterval = 500 * time.Millisecond
)

// newStatusCmd returns the command that tells how a server is doing.
func newStatusCmd() *cobra.Command {
	var timeout, interval time.Duration
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "status [ADDRESS]",
		Short: "Tell how a server is doing, and what to mend",
		Long: `status asks a server at its metrics address and tells what the page there says:
the hit share, where the tokens of prompts went, what to do about what was lost,
and the pools. ADDRESS is host:port or a URL; without it the one of the
configuration is asked, or 127.0.0.1:9557.

With --interval it asks again and again, until it is interrupted.`,
		Example: "  hitline status\n  hitline status -i 2 10.0.0.20:9557\n  hitline status --config hitline.yaml --json",
		Args:    cli.AtMostOne,
	}
	cli.DurationVarP(cmd.Flags(), &timeout, "timeout", "", 5*time.Second, "most `time` to wait for an answer")
	cli.DurationVarP(cmd.Flags(), &interval, "interval", "i", 0, "`time` between two answers (default one answer)")
	cmd.Flags().StringVar(&file, "config", "", "YAML `file` of serve, whose metrics address is asked")
	cli.JSONFlag(cmd.Flags(), &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if interval != 0 && interval < minStatusInterval {
			return usagef("--interval %v: at least %v", interval, minStatusInterval)
		}
		address, err := statusURL(strings.Join(args, ""), file)
		if err != nil {
			return err
		}
		asker := &statusAsker{url: address, client: http.Client{Timeout: timeout}}
		if interval == 0 {
			text, st, err := asker.ask(cmd.Context())
			if err != nil {
				return err
			}
			return cli.PrintResult(cmd, asJSON, json.RawMessage(text), status.Text(st))
		}
		return asker.watch(cmd, interval, asJSON)
	}
	return cmd
}

// statusURL returns the URL of /status at an address, or else at that of the configuration.
func statusURL(address, file string) (string, error) {
	if address == "" {
		cfg, err := config.Load(config.Source{File: file, Environ: os.Environ()})
		if err != nil {
			return "", configError(err)
		}
		if address = cfg.Metrics; address == "" && file != "" {
			return "", configError(fmt.Errorf("%s: metrics is not configured, so there is nothing to ask", file))
		}
	}
	address = cmp.Or(address, defaultMetrics)
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usagef("%q is no address: write host:port, or a URL", address)
	}
	return u.Scheme + "://" + u.Host + "/status", nil
}

// statusAsker asks one server.
type statusAsker struct {
	url    string
	client http.Client
}

// ask returns a status, and its JSON.
func (a *statusAsker) ask(ctx context.Context) (text []byte, st status.Status, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return nil, st, err
	}
	reply, err := a.client.Do(request)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, st, cli.WithClass(fmt.Errorf("%s: %w; metrics of hitline serve names the address", a.url, err), client.ErrConnect)
	}
	defer reply.Body.Close()
	text, err = io.ReadAll(io.LimitReader(reply.Body, maxStatusBytes))
	switch {
	case err != nil:
		return nil, st, cli.WithClass(fmt.Errorf("%s: %w", a.url, err), client.ErrConnect)
	case reply.StatusCode != http.StatusOK:
		return nil, st, fmt.Errorf("%s: status %s", a.url, reply.Status)
	case json.Unmarshal(text, &st) != nil:
		return nil, st, fmt.Errorf("%s: no status of hitline; is it the metrics address?", a.url)
	}
	return text, st, nil
}

// watch prints a status after each interval, until it is interrupted. In a terminal each has the screen to itself.
func (a *statusAsker) watch(cmd *cobra.Command, interval time.Duration, asJSON bool) error {
	out := cmd.OutOrStdout()
	f, isFile := out.(*os.File)
	screen := isFile && !asJSON && term.IsTerminal(int(f.Fd()))
	if screen {
		fmt.Fprint(out, "\x1b[?1049h") // the alternate screen
		defer fmt.Fprint(out, "\x1b[?1049l")
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		text, st, err := a.ask(cmd.Context())
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil && !screen:
			return err
		case err != nil:
			fmt.Fprintf(out, "\x1b[H\x1b[J%s\n", printable.Text(err.Error()))
		case asJSON:
			fmt.Fprintln(out, strings.TrimSpace(string(text)))
		case screen:
			fmt.Fprintf(out, "\x1b[H\x1b[J%s\n", status.Text(st))
		default:
			fmt.Fprintf(out, "%s\n\n", status.Text(st))
		}
		select {
		case <-tick.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}
