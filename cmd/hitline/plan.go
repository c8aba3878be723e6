package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newPlanCmd returns the command that asks for a hit and what it loads.
func newPlanCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "plan --tokens N --hashes-file FILE",
		Short: "Ask for the hit of a prompt and which blocks it loads",
		Long: `plan looks up a prompt as lookup does, and prints the hit in tokens and which
chunks of each group an engine must load for it, with --from those from there
on.

A row has a # for each chunk to load, and a . for each other. Of groups with
more than 64 chunks a character stands for several; + says that only some of
them are loaded. With --json the masks have the first and the end chunk of each
run; the runs are empty if "all" is true.`,
		Example: "  seq 64 | hitline hash | hitline plan --tokens 64 --hashes-file -\n  hitline plan --tokens 128 --hashes-file prompt.hex",
		Args:    cli.NoArgs,
	}
	tokens := cmd.Flags().Uint32("tokens", 0, "length of the prompt in `tokens` (required)")
	from := fromFlag(cmd)
	file := hashesFlag(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hashes, err := t.loadLookup(cmd, *file, *from)
		if err != nil {
			return err
		}
		plan, err := ask(cmd.Context(), &t, func(ctx context.Context, c *client.Client) (api.Plan, error) {
			plan, err := c.Plan(ctx, int64(*tokens), hashes.forRequest())
			if err == nil && plan.Hit.Tokens == 0 {
				err = t.checkMiss(ctx, c, *tokens, hashes)
			}
			return plan, err
		})
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, struct {
			HitTokens      int64      `json:"hit_tokens"`
			TailBoundaries []int64    `json:"tail_boundaries,omitempty"`
			Masks          []jsonMask `json:"masks"`
		}{plan.Hit.Tokens, tailTokens(plan.Hit.TailBoundaries), jsonMasks(plan.Masks)},
			fmt.Sprintf("hit %d tokens\n%s", plan.Hit.Tokens, formatMasks(plan.Masks, plan.Hit.TailBoundaries)))
	}
	return cmd
}

// jsonMask is a mask as --json prints it.
type jsonMask struct {
	Group *int       `json:"group"`
	First int64      `json:"first"`
	End   int64      `json:"end"`
	All   bool       `json:"all"`
	Runs  [][2]int64 `json:"runs"`
}

// jsonMasks converts masks for --json.
func jsonMasks(masks []api.GroupMask) []jsonMask {
	out := make([]jsonMask, len(masks))
	for i, m := range masks {
		out[i] = jsonMask{First: m.First, End: m.End, All: m.All, Runs: make([][2]int64, 0, len(m.Runs))}
		if m.Group != api.NotStored {
			out[i].Group = &m.Group
		}
		for _, run := range m.Runs {
			out[i].Runs = append(out[i].Runs, [2]int64{run.Start, run.End})
		}
	}
	return out
}

// formatMasks writes masks as a table with a row of characters for each group. tails are the
// tail boundaries of a hit, if it has some.
func formatMasks(masks []api.GroupMask, tails []coordinator.TailBoundary) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "group\tchunks")
	if len(tails) > 0 {
		fmt.Fprint(w, "\ttail boundary")
	}
	fmt.Fprintln(w, "\tmask")
	for _, m := range masks {
		group, tail := "-", "-"
		if m.Group != api.NotStored {
			group = fmt.Sprint(m.Group)
		}
		chunks := "none"
		if m.First < m.End {
			chunks = fmt.Sprintf("%d to %d", m.First, m.End-1)
		}
		fmt.Fprintf(w, "%s\t%s", group, chunks)
		if len(tails) > 0 {
			if m.Group >= 0 && m.Group < len(tails) {
				tail = fmt.Sprint(tails[m.Group].Tokens)
			}
			fmt.Fprintf(w, "\t%s", tail)
		}
		fmt.Fprintf(w, "\t%s\n", formatMask(m))
	}
	_ = w.Flush() // a Builder never fails
	return strings.TrimSuffix(b.String(), "\n")
}

// maskColumns is how many characters a mask has at most.
const maskColumns = 64

// formatMask writes a mask as a row of characters.
func formatMask(m api.GroupMask) string {
	n := m.End - m.First
	each := max((n+maskColumns-1)/maskColumns, 1)
	var row strings.Builder
	for at := m.First; at < m.End; at += each {
		end := min(at+each, m.End)
		switch trueChunks(m, at, end) {
		case 0:
			row.WriteByte('.')
		case end - at:
			row.WriteByte('#')
		default:
			row.WriteByte('+')
		}
	}
	if each > 1 {
		fmt.Fprintf(&row, "  (%d chunks a character)", each)
	}
	return row.String()
}

// trueChunks returns how many of the chunks from at to end-1 are true.
func trueChunks(m api.GroupMask, at, end int64) (n int64) {
	if m.All {
		return end - at
	}
	for _, run := range m.Runs {
		n += max(0, min(run.End, end)-max(run.Start, at))
	}
	return n
}
