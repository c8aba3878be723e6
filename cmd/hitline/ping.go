package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/client"
)

// newPingCmd returns the command that measures a round trip.
func newPingCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Measure a round trip to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --json: {"round_trip_us": microseconds}.`,
		Example: "  hitline ping --timeout 1s\n  hitline ping --json",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		roundTrip, err := ask(cmd.Context(), &t, ping)
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string]float64{"round_trip_us": float64(roundTrip.Nanoseconds()) / 1e3}, roundTrip.String())
	}
	return cmd
}

// ping returns the time of one round trip.
func ping(ctx context.Context, c *client.Client) (time.Duration, error) {
	sent := time.Now()
	_, err := c.Ping(ctx)
	return time.Since(sent), err
}
