package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/printable"
	routerclient "github.com/hitline/hitline/router/client"
)

// newRouterCmd returns the command that lists the engines that a router follows.
func newRouterCmd() *cobra.Command {
	t := askingHTTP()
	cmd := &cobra.Command{
		Use:   "router",
		Short: "List the engines whose KV events the server follows",
		Long: `router asks a server that follows the KV events of engines, at router.listen,
for the state of each. It prints a line for each rank, first those that count
for nothing but predictions: how long ago its last event came, how many blocks
it has, and what is wrong. A line for each model follows.

A state is live; incomplete, if the engine may have more blocks; stale, if
events may be missing; or predicted, if no events are followed.`,
		Example: "  hitline router\n  hitline router --connect 10.0.0.20:8557 --json",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		services, err := askServices(cmd.Context(), &t)
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, services.JSON, formatServices(services))
	}
	return cmd
}

// askServices asks for the state of the models and sources.
func askServices(ctx context.Context, t *target) (*routerclient.Services, error) {
	return askRouter(ctx, t, func(ctx context.Context, c *routerclient.Client) (*routerclient.Services, error) {
		return c.Services(ctx)
	})
}

// followedRank is a data-parallel rank of an engine, as router prints it.
type followedRank struct {
	model, tenant, engine string
	rank                  int
	state                 string
	lastEvent             time.Time // zero: none came
	blocks                int64
	problem               string // empty if there is none
}

// States of a followedRank.
const (
	stateStale      = "stale"
	statePredicted  = "predicted"
	stateIncomplete = "incomplete"
)

// isUseless reports whether a rank counts for nothing but predictions.
func (r *followedRank) isUseless() bool { return r.state == stateStale || r.state == statePredicted }

// ranksOf returns the ranks of a reply in the order in which they are printed.
func ranksOf(s *routerclient.Services) []followedRank {
	var list []followedRank
	for i := range s.Sources {
		list = append(list, rankOf(&s.Sources[i]))
	}
	for _, m := range s.Models {
		for _, h := range m.Holders {
			isFollowed := slices.ContainsFunc(s.Sources, func(of routerclient.Source) bool {
				return of.Model == m.Name && of.Tenant == m.Tenant && of.Engine == h.Engine && of.Rank == h.Rank
			})
			if !isFollowed {
				list = append(list, followedRank{model: m.Name, tenant: m.Tenant, engine: h.Engine, rank: h.Rank, state: statePredicted, blocks: h.Blocks})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b followedRank) int {
		if a.isUseless() != b.isUseless() {
			return map[bool]int{true: -1, false: 1}[a.isUseless()]
		}
		return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.model, b.model), strings.Compare(a.engine, b.engine), cmp.Compare(a.rank, b.rank))
	})
	return list
}

// rankOf returns the rank of a source.
func rankOf(s *routerclient.Source) followedRank {
	r := followedRank{s.Model, s.Tenant, s.Engine, s.Rank, s.State, s.LastEvent, s.Blocks, s.LastError}
	switch {
	case s.Stale:
		r.state, r.problem = stateStale, cmp.Or(s.LastError, s.State)
	case !s.Complete:
		r.state = stateIncomplete
	}
	if s.HashesReason != "" {
		r.problem = strings.TrimPrefix(r.problem+"; hashes differ: "+s.HashesReason, "; ")
	}
	return r
}

// formatServices writes a table of the ranks, and a line for each model.
func formatServices(s *routerclient.Services) string {
	var b strings.Builder
	ranks := ranksOf(s)
	if len(ranks) == 0 {
		b.WriteString("no engine is followed; name them under router.sources, or register them\n")
	} else {
		var table cli.Table
		table.Row("model", "engine", "rank", "state", "last event", "blocks", "problem")
		for i := range ranks {
			r := &ranks[i]
			model, age := shownModel(r.tenant, r.model), shownAge(s.Time, r.lastEvent)
			table.Row(model, r.engine, r.rank, r.state, age, r.blocks, cmp.Or(r.problem, "-"))
		}
		b.WriteString(table.String() + "\n")
	}
	for _, m := range s.Models {
		fmt.Fprintf(&b, "model %s: %d different blocks in %d of %d MiB", shownModel(m.Tenant, m.Name), m.Blocks, wholeMiB(m.Bytes)>>20, m.MaxBytes>>20)
		if m.HashesDiffer {
			b.WriteString("; token ids find little, as no engine is known to hash as its hash says")
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shownModel returns the name of a model, after that of its tenant if it is not the usual one.
func shownModel(tenant, model string) string {
	if tenant != "default" {
		model = tenant + "/" + model
	}
	return printable.Text(model)
}

// shownAge returns how long ago something was, - if it never was.
func shownAge(now, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return max(now.Sub(at), 0).Round(time.Second).String() + " ago"
}
