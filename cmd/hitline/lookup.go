package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newLookupCmd returns the command that asks for the hit of a prompt.
func newLookupCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "lookup --tokens N --hashes-file FILE",
		Short: "Ask how many leading tokens of a prompt are in the pool",
		Long: `lookup sends the hashes of a prompt's blocks and prints the hit in tokens.

A hit of 0 is also what a server answers if a lookup fails. So lookup then asks
why, and fails if the lookup has failed.

With --from it asks as an engine that holds the tokens before it; the file then
has the hashes from there on. A hit of --from tokens or less means that there is
nothing to load.

With --explain it prints, for each group, where its part of the hit ended and
why, and the gap: the blocks that would have to be stored for a longer hit.
  missing_block       the first missing block is on no rank
  rank_missing        it is on some of its ranks only
  window_not_covered  a block of the window before the end is missing
  alignment           what is stored after that is less than hits are aligned to
  eagle               the last block was given up for the draft model
  hashes_end, nothing_asked, complete`,
		Example: "  seq 64 | hitline hash | hitline lookup --tokens 64 --hashes-file -\n  hitline lookup --tokens 128 --hashes-file prompt.hex --explain",
		Args:    cli.NoArgs,
	}
	tokens := cmd.Flags().Uint32("tokens", 0, "length of the prompt in `tokens` (required)")
	from := cmd.Flags().Uint32("from", 0, "`token` where the lookup begins, a multiple of the pool's scheduler_block_size (default 0)")
	file := hashesFlag(cmd)
	explain := cmd.Flags().Bool("explain", false, "tell for each group where its hit ended, and why")
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := requireFlags(cmd, "tokens", "hashes-file"); err != nil {
			return err
		}
		hashes, err := loadHashes(cmd, *file)
		if err != nil {
			return err
		}
		hashes.start = *from
		if *explain {
			return runExplain(cmd, &t, *tokens, hashes)
		}
		return runLookup(cmd, &t, *tokens, hashes)
	}
	return cmd
}

// runLookup prints the hit.
func runLookup(cmd *cobra.Command, t *target, tokens uint32, hashes hashList) error {
	hit, err := ask(cmd.Context(), t, func(ctx context.Context, c *client.Client) (api.Hit, error) {
		hit, err := c.Lookup(ctx, int64(tokens), hashes.forRequest())
		if err == nil && hit.Tokens == 0 {
			err = t.checkMiss(ctx, c, tokens, hashes)
		}
		return hit, err
	})
	if err != nil {
		return err
	}
	return cli.PrintResult(cmd, t.json, struct {
		HitTokens   int64  `json:"hit_tokens"`
		StartTokens uint32 `json:"start_tokens"`
		NumTokens   uint32 `json:"num_tokens"`
		Hashes      int    `json:"hashes"`
		// TailBoundaries are in tokens, by store group.
		TailBoundaries []int64 `json:"tail_boundaries,omitempty"`
	}{hit.Tokens, hashes.start, tokens, hashes.count(), tailTokens(hit.TailBoundaries)}, strconv.FormatInt(hit.Tokens, 10))
}

// checkMiss returns why a lookup that hit nothing has failed, nil if it was a miss: its answer
// does not tell.
func (t *target) checkMiss(ctx context.Context, c *client.Client, tokens uint32, hashes hashList) error {
	e, err := c.Explain(ctx, int64(tokens), hashes.forRequest())
	switch {
	case errors.Is(err, client.ErrNotAllowed), errors.Is(err, client.ErrUnknownRequest):
		t.warn("a hit of 0 may be a failure; the server does not tell without the permission explain")
	case err != nil:
		return fmt.Errorf("a hit of 0, as the lookup failed: %w", err)
	case e.HitTokens == 0:
		for _, g := range e.Groups { // a block that is missing is a miss, and needs no words
			if g.Reason == coordinator.ReasonHashes {
				t.warn(fmt.Sprintf("a hit of 0, as the hashes end within the first block of group %d; --explain tells more", g.Group))
				break
			}
		}
	default:
		return fmt.Errorf("a hit of 0, and of %d a moment later: the store failed, or the blocks were stored meanwhile; ask again", e.HitTokens)
	}
	return nil
}

// tailTokens returns the tokens of tail boundaries, which are in the order of the groups.
func tailTokens(boundaries []coordinator.TailBoundary) []int64 {
	tokens := make([]int64, len(boundaries))
	for i := range boundaries {
		tokens[i] = boundaries[i].Tokens
	}
	return tokens
}

// runExplain prints where and why each group's part of the hit ends.
func runExplain(cmd *cobra.Command, t *target, tokens uint32, hashes hashList) error {
	e, err := ask(cmd.Context(), t, func(ctx context.Context, c *client.Client) (api.Explanation, error) {
		return c.Explain(ctx, int64(tokens), hashes.forRequest())
	})
	if err != nil {
		return err
	}
	return cli.PrintResult(cmd, t.json, e, formatExplanation(e))
}

// formatExplanation writes an explanation as a table.
func formatExplanation(e api.Explanation) string {
	text := fmt.Sprintf("hit %d tokens", e.HitTokens)
	if e.StartTokens > 0 {
		text += fmt.Sprintf(", looked up from %d on", e.StartTokens)
	}
	var table cli.Table
	hasTails := len(e.Groups) > 0 && e.Groups[0].TailBoundary != nil
	hasRanks := slices.ContainsFunc(e.Groups, func(g api.GroupExplanation) bool { return g.MissingRank != nil })
	row := func(group, kind, end, reason, missing, rank, gap, tail any) {
		cells := []any{group, kind, end, reason, missing}
		if hasRanks {
			cells = append(cells, rank)
		}
		cells = append(cells, gap)
		if hasTails {
			cells = append(cells, tail)
		}
		table.Row(cells...)
	}
	row("group", "kind", "ends at token", "reason", "first missing block", "missing on", "gap", "tail boundary")
	for _, g := range e.Groups {
		row(g.Group, g.Kind, g.EndTokens, g.Reason, orDash(g.FirstMissingBlock), formatMissingRank(g), formatGap(g), orDash(g.TailBoundary))
	}
	text += "\n" + table.String()
	if e.Account != nil {
		text += "\n" + formatAccount(e.Account)
	}
	return text
}

// formatAccount says where the tokens of a prompt would be counted now, and what is remembered of the block that ended the hit.
func formatAccount(a *api.LostTokens) string {
	var parts []string
	for _, place := range slices.Sorted(maps.Keys(a.Tokens)) {
		parts = append(parts, fmt.Sprintf("%s %d", printable.Text(place), a.Tokens[place]))
	}
	text := "tokens by place: " + strings.Join(parts, ", ")
	if a.Tokens["new"] > 0 && !a.RemembersSince.IsZero() {
		text += "\nnew: nobody asked since " + a.RemembersSince.Format(time.RFC3339) + "; what was asked for only before is forgotten"
	}
	if a.Place == "" {
		return text
	}
	text += fmt.Sprintf("\nlost: %s; block %d", printable.Text(a.Place), a.Block)
	if !a.AskedAt.IsZero() {
		text += ", last asked for at " + a.AskedAt.Format(time.RFC3339)
	}
	if !a.WholeAt.IsZero() {
		text += ", last whole at " + a.WholeAt.Format(time.RFC3339)
	}
	return text
}

// formatMissingRank returns the first rank that lacks the first missing block, and how many
// more do.
func formatMissingRank(g api.GroupExplanation) string {
	switch {
	case g.MissingRank == nil:
		return "-"
	case g.MissingRanks == 1:
		return g.MissingRank.String()
	}
	return fmt.Sprintf("%s and %d more", g.MissingRank, g.MissingRanks-1)
}

// formatGap returns the blocks of a gap, the last one included.
func formatGap(g api.GroupExplanation) string {
	switch {
	case g.GapStart == nil || g.GapEnd == nil:
		return "-"
	case *g.GapEnd == *g.GapStart+1:
		return fmt.Sprint(*g.GapStart)
	}
	return fmt.Sprintf("%d to %d", *g.GapStart, *g.GapEnd-1)
}

// orDash returns a number as text, or a dash for none.
func orDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}
