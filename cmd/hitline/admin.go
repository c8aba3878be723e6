package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/lookup/client"
)

// newReset returns the command that empties the index.
func newReset() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make the server forget every block",
		Long: `reset empties the server's index.

With --json: {"reset": true}`,
		Example: "  hitline reset --connect tcp://10.0.0.1:7557",
		Args:    noArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		err := t.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error { return c.Reset(ctx) })
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]bool{"reset": true}, "done")
	}
	return cmd
}

// newPing returns the command that measures a round trip.
func newPing() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Measure one round trip to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --json: {"round_trip_ns": nanoseconds}`,
		Example: "  hitline ping --timeout 1s",
		Args:    noArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		var took time.Duration
		err := t.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			begun := time.Now()
			err := c.Ping(ctx)
			took = time.Since(begun)
			return err
		})
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]int64{"round_trip_ns": took.Nanoseconds()}, took.String())
	}
	return cmd
}
