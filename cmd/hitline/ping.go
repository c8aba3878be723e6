package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newPingCmd returns the command that measures a round trip.
func newPingCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Measure a round trip to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --json: {"round_trip_us": microseconds, ...}, and what the server tells of
itself: its instance, version, requests and limits.`,
		Example: "  hitline ping --timeout 1s\n  hitline ping --json",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		p, err := ask(cmd.Context(), &t, ping)
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, p, p.roundTrip.String())
	}
	return cmd
}

// pong is what ping prints.
type pong struct {
	roundTrip   time.Duration
	RoundTripUs float64 `json:"round_trip_us"`
	api.Instance
}

// ping makes one round trip.
func ping(ctx context.Context, c *client.Client) (pong, error) {
	sent := time.Now()
	instance, err := c.Ping(ctx)
	took := time.Since(sent)
	return pong{took, float64(took.Nanoseconds()) / 1e3, instance}, err
}
