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
		Use:   "ping [ADDRESS]",
		Short: "Measure a round trip to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --json it also prints what the server tells of itself: its instance,
version, requests and limits.`,
		Example: "  hitline ping localhost\n  hitline ping --timeout 1s --json",
		Args:    cli.AtMostOne,
	}
	t.addFlags(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if cmd.Flags().Changed("connect") {
				return usagef("%s and --connect: give one address", args[0])
			}
			_ = cmd.Flags().Set("connect", args[0]) // any text
		}
		return t.check()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
