package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

// newResetCmd returns the command that empties the server's index.
func newResetCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make the server forget every block of a pool, or of a rank",
		Long: `reset empties the pool: the server's own, or the one that --pool names.

With --group or a rank it removes only what the ranks hold that match, as those
of a worker that has died. Omitted flags match every group or rank. Over a
backend the server refuses that.

Without --yes it says what it would forget, and does nothing.

With --json: {"reset": true}`,
		Example: "  hitline reset --yes\n  hitline reset --tp-rank 0 --yes",
		Args:    cli.NoArgs,
	}
	rank, check := anyRankFlags(cmd)
	yes := cmd.Flags().BoolP("yes", "y", false, "do it")
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(); err != nil {
			return err
		}
		reset := (*client.Client).Reset
		if !rank.IsAny() {
			reset = func(c *client.Client, ctx context.Context) error { return c.ResetRank(ctx, *rank) }
		}
		if !*yes {
			return usagef("--yes is required to forget all blocks of %s at %s", t.resetScope(cmd), t.connect)
		}
		err := t.do(cmd.Context(), func(ctx context.Context, c *client.Client) error { return reset(c, ctx) })
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string]bool{"reset": true}, "done")
	}
	return cmd
}

// resetScope names the blocks that the flags describe.
func (t *target) resetScope(cmd *cobra.Command) string {
	of := "the server's own pool"
	if t.pool != "" {
		of = fmt.Sprintf("pool %q", t.pool)
	}
	visitRanks(cmd, func(f *pflag.Flag) { of = f.Name + " " + f.Value.String() + " of " + of })
	return of
}

// visitRanks calls visit with each flag of anyRankFlags that was given.
func visitRanks(cmd *cobra.Command, visit func(*pflag.Flag)) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "uint16" {
			visit(f)
		}
	})
}

// anyRankFlags adds the flags of a group and its ranks. What is not given is AnyRank; check
// refuses a flag that is given so, which would reset more than was meant.
func anyRankFlags(cmd *cobra.Command) (rank *coordinator.GroupRank, check func() error) {
	const any = coordinator.AnyRank
	rank = &coordinator.GroupRank{Group: any, TPRank: any, PPRank: any, PCPRank: any}
	rankFlags(cmd, rank, "all")
	return rank, func() (err error) {
		visitRanks(cmd, func(f *pflag.Flag) {
			if f.Value.String() == strconv.Itoa(int(coordinator.AnyRank)) {
				err = usagef("--%s %s: ranks are below it", f.Name, f.Value)
			}
		})
		return err
	}
}

// rankFlags adds the flags of a group and its ranks. What is not given stays as it is, which help calls byDefault.
func rankFlags(cmd *cobra.Command, rank *coordinator.GroupRank, byDefault string) {
	for _, f := range []struct {
		field       *uint16
		name, usage string
	}{
		{&rank.Group, "group", "`number` of the store group: of the pool's groups, those kept in the store, from 0"},
		{&rank.TPRank, "tp-rank", "tensor-parallel `rank` of the engine's keys, the KV shard, from 0"},
		{&rank.PPRank, "pp-rank", "pipeline-parallel `rank`, from 0"},
		{&rank.PCPRank, "pcp-rank", "prefill-context-parallel `rank`, from 0"},
	} {
		cmd.Flags().Uint16Var(f.field, f.name, *f.field, f.usage+" (default "+byDefault+")")
		cmd.Flags().Lookup(f.name).DefValue = "0" // help does not show a zero
	}
}
