package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// target is the server that a command asks, and how the command answers.
type target struct {
	connect string
	timeout time.Duration
	json    bool
}

// addFlags defines the flags that all asking commands share.
func (t *target) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.connect, "connect", api.DefaultListen, "`address` of the server: tcp://host:port, host:port, ipc:///path or ipc://@name")
	cmd.Flags().DurationVar(&t.timeout, "timeout", 10*time.Second, "most `time` to wait, for connecting and the answer together")
	cmd.Flags().BoolVar(&t.json, "json", false, "print one line of JSON")
}

// check refuses flags that cannot work, before any file is read.
func (t *target) check() error {
	if t.timeout <= 0 {
		return usagef("--timeout is %v, must be more than 0", t.timeout)
	}
	if err := config.CheckAddress(t.connect); err != nil {
		return usagef("--connect: %v", err)
	}
	return nil
}

// ask connects, runs request, and closes the connection.
func (t *target) ask(ctx context.Context, request func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	client, err := client.Dial(ctx, t.connect, client.WithTimeout(0)) // ctx bounds all
	if err != nil {
		return t.explain(ctx, err)
	}
	defer client.Close() // nothing is buffered: what failed has failed before
	if err := request(ctx, client); err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

// explain adds the server's address to an error. If the time was up, it says whether
// there was a connection.
func (t *target) explain(ctx context.Context, err error) error {
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case timedOut && errors.Is(err, client.ErrNoAnswer):
		return classed{fmt.Errorf("%s: connected, but no answer within %v", t.connect, t.timeout), client.ErrNoAnswer}
	case timedOut:
		return classed{fmt.Errorf("%s: no connection within %v: %w", t.connect, t.timeout, err), client.ErrConnect}
	}
	return fmt.Errorf("%s: %w", t.connect, err)
}

// printResult writes value as one line of JSON, or the text, to standard output.
func printResult(cmd *cobra.Command, asJSON bool, value any, text string) error {
	if asJSON {
		line, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("cannot print the answer: %w", err)
		}
		text = string(line)
	}
	return printText(cmd, text)
}

// printText writes text and a newline to standard output.
func printText(cmd *cobra.Command, text string) error {
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
		return fmt.Errorf("cannot print the answer: %w", err)
	}
	return nil
}
