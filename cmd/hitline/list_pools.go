package main

import (
	"cmp"
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// poolLine is one pool of a server, as pools prints it.
type poolLine struct {
	Name          string `json:"name"` // empty for the server's own
	VLLM          string `json:"vllm"` // the releases that it fits
	HashBlockSize int    `json:"hash_block_size"`
	Backend       string `json:"backend"`
	Model         string `json:"model_name"`
	Lookups       int64  `json:"lookups"`
}

// newPoolsCmd returns the command that lists the pools of a server.
func newPoolsCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List the pools of the server",
		Long: `pools prints a line for each pool: its name, which commands take by --pool, or -
for the server's own; the releases of vLLM that it fits; how many tokens a hash
stands for; its backend and model; and its lookups.`,
		Example: "  hitline pools\n  hitline pools --json",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		pools, err := t.listPools(cmd.Context())
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string][]poolLine{"pools": pools}, formatPools(pools))
	}
	return cmd
}

// listPools asks for the names of the pools, or takes that of --pool, and then asks for each.
func (t *target) listPools(ctx context.Context) ([]poolLine, error) {
	names := []string{t.pool}
	if t.pool == "" {
		stat, err := t.askStat(ctx)
		if err != nil {
			return nil, err
		}
		names = poolNames(stat)
	}
	pools, err := t.askPools(ctx, names)
	lines := []poolLine{}
	for _, p := range pools {
		lines = append(lines, poolLine{p.name, p.pool.VLLM, p.pool.Pool.HashBlockSize, p.pool.Backend, p.pool.Pool.ModelName, p.stat.Lookups})
	}
	return lines, err
}

// poolNames returns the names of the pools of a server, "" for its own.
func poolNames(stat api.Stat) []string {
	if stat.VLLM != "" {
		return append([]string{""}, stat.PoolNames...)
	}
	return stat.PoolNames
}

// servedPool is one pool of a server, with its counters.
type servedPool struct {
	name string
	pool api.Pool
	stat api.Stat
}

// askPools asks for each pool over a connection of its own.
func (t *target) askPools(ctx context.Context, names []string) (pools []servedPool, err error) {
	for _, name := range names {
		of := *t
		of.pool, of.namesPool = name, true
		served, err := ask(ctx, &of, func(ctx context.Context, c *client.Client) (servedPool, error) {
			stat, err := c.Stat(ctx)
			pool, _ := c.Pool()
			return servedPool{name, pool, stat}, err
		})
		if err != nil {
			return nil, err
		}
		pools = append(pools, served)
	}
	return pools, nil
}

// formatPools writes pools as a table.
func formatPools(pools []poolLine) string {
	if len(pools) == 0 {
		return "the server has no pool yet; an engine that connects describes one, or configure pool"
	}
	var table cli.Table
	table.Row("name", "vllm", "block size", "backend", "model", "lookups")
	for _, p := range pools {
		table.Row(shownName(p.Name), p.VLLM, p.HashBlockSize, p.Backend, strconv.Quote(p.Model), p.Lookups)
	}
	return table.String()
}

// shownName returns the name of a pool as it is printed.
func shownName(name string) string { return cmp.Or(name, "-") }
