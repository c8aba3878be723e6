package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newStatCmd returns the command that prints the server's counters.
func newStatCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Print the counters of the server",
		Long: `stat prints what the server counts, one key a line. If pools have names, the
counters of pools are sums, and a line for each pool follows, - for the server's
own. With --pool they are those of that pool alone.

With --json: one JSON object, with the counters of one pool alone.`,
		Example: "  hitline stat\n  hitline stat --json | jq .entries",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		stat, err := t.askStat(cmd.Context())
		if err != nil {
			return err
		}
		if t.json {
			return cli.PrintResult(cmd, true, stat, "")
		}
		var pools []servedPool
		if t.pool == "" && len(stat.PoolNames) > 0 {
			if pools, err = t.askPools(cmd.Context(), poolNames(stat)); err != nil {
				t.warn(fmt.Sprintf("the counters of the pools are left out: %v", err))
			}
		}
		text, err := formatStat(stat, pools)
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, false, nil, text)
	}
	return cmd
}

// askStat asks for the counters of the server.
func (t *target) askStat(ctx context.Context) (api.Stat, error) {
	return ask(ctx, t, func(ctx context.Context, c *client.Client) (api.Stat, error) { return c.Stat(ctx) })
}

// Counters that only a memory index has, and that only a store has.
var (
	memoryCounters = []string{"entries", "max_entries", "bytes", "max_bytes", "stores_refused"}
	storeCounters  = []string{
		"backend_errors", "backend_timeouts", "backend_rejected", "backend_rounds", "backend_keys", "remembered_lookups", "renewed_keys", "renewals_dropped",
	}
)

// poolCounters returns the counters of a pool.
func poolCounters(s *api.Stat) []*int64 {
	return []*int64{
		&s.Entries, &s.MaxEntries, &s.Bytes, &s.MaxBytes, &s.StoresRefused,
		&s.BackendErrors, &s.BackendTimeouts, &s.BackendRejected, &s.BackendRounds, &s.BackendKeys, &s.RememberedLookups, &s.RenewedKeys, &s.RenewalsDropped,
		&s.Lookups, &s.Stored, &s.Evicted,
	}
}

// formatStat writes the counters that the backend has. With pools, theirs are summed, and a line for each follows.
func formatStat(stat api.Stat, pools []servedPool) (string, error) {
	hidden := storeCounters
	if stat.Backend != "" && stat.Backend != "memory" {
		hidden = memoryCounters
	}
	if len(pools) == 0 {
		return formatTable(stat, hidden)
	}
	stat.PoolNames = nil                                                                                                             // they are in the lines
	hidden = append(slices.Clone(hidden), "vllm", "retention_s", "evicted_age_s", "remembered_share", "curve", "measured_hit_share") // of single pools
	sums := poolCounters(&stat)
	for _, sum := range sums {
		*sum = 0
	}
	for _, p := range pools {
		for i, n := range poolCounters(&p.stat) {
			*sums[i] += *n
		}
	}
	stat.PoolTokens = sumTokens(pools)
	table, err := formatTable(stat, hidden)
	return table + "\n\n" + formatPoolCounters(pools), err
}

// sumTokens returns where the tokens of all pools went, nil if the server keeps no account.
func sumTokens(pools []servedPool) (sum *api.PoolTokens) {
	for _, p := range pools {
		of := p.stat.PoolTokens
		if of == nil {
			continue
		}
		if sum == nil {
			sum = &api.PoolTokens{Tokens: map[string]int64{}}
		}
		for place, n := range of.Tokens {
			sum.Tokens[place] += n
		}
		sum.Prompts += of.Prompts
		sum.Open += of.Open
		sum.NotCounted += of.NotCounted
		sum.Keys += of.Keys
		sum.LookedKeys += of.LookedKeys
		sum.LooksDropped += of.LooksDropped
	}
	return sum
}

// formatHitShare returns the hit share of a pool.
func formatHitShare(t *api.PoolTokens) string {
	if t != nil {
		if share, ok := api.HitShare(t.Tokens); ok {
			return fmt.Sprintf("%.1f %%", 100*share)
		}
	}
	return "-"
}

// formatPoolCounters writes a line for each pool.
func formatPoolCounters(pools []servedPool) string {
	var table cli.Table
	table.Row("pool", "vllm", "lookups", "hit share", "stored", "evicted")
	for _, p := range pools {
		s := p.stat
		table.Row(shownName(p.name), s.VLLM, s.Lookups, formatHitShare(s.PoolTokens), s.Stored, s.Evicted)
	}
	return table.String()
}

// formatTable writes an object as a table: a line for each value, sorted, with the keys that lead to it joined by dots.
// Lines whose key is hidden are left out.
func formatTable(of any, hidden []string) (string, error) {
	object, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a float64 would lose digits of counters
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return "", err
	}
	flat := map[string]string{}
	flatten(flat, "", fields)
	for _, key := range hidden {
		delete(flat, key)
	}
	var table cli.Table
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		table.Row(key, flat[key])
	}
	return table.String(), nil
}

// flatten adds the values of fields to flat. Their keys begin with prefix.
func flatten(flat map[string]string, prefix string, fields map[string]any) {
	for key, value := range fields {
		key = prefix + key
		switch v := value.(type) {
		case map[string]any:
			flatten(flat, key+".", v)
		case string:
			flat[key] = v
		default:
			text, _ := json.Marshal(v) // v was decoded from JSON
			flat[key] = string(text)
		}
	}
}
