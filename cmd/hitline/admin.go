package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/lookup/client"
)

// newResetCmd returns the command that empties the server's index.
func newResetCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make the server forget every block of a pool",
		Long: `reset empties the pool: the server's own, or the one that --pool names.

With --json: {"reset": true}`,
		Example: "  hitline reset --connect tcp://10.0.0.1:7557",
		Args:    refuseArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		err := t.do(cmd.Context(), func(ctx context.Context, c *client.Client) error { return c.Reset(ctx) })
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]bool{"reset": true}, "done")
	}
	return cmd
}

// newPingCmd returns the command that measures one round trip.
func newPingCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Measure one round trip to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --json: {"round_trip_ns": nanoseconds}`,
		Example: "  hitline ping --timeout 1s",
		Args:    refuseArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		var roundTrip time.Duration
		err := t.do(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			sent := time.Now()
			err := c.Ping(ctx)
			roundTrip = time.Since(sent)
			return err
		})
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]int64{"round_trip_ns": roundTrip.Nanoseconds()}, roundTrip.String())
	}
	return cmd
}
