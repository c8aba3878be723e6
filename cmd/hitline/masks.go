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

` + rowsHelp + `

With --json: {"hit_tokens": …, "tail_boundaries": […], "masks": [{"group": …,
"first": …, "end": …, "all": …, "runs": [[start, end], …]}]}. A run is the
chunks from start to end-1. The group is null if it is not kept in the store.
The runs are empty if all is true.`,
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

// rowsHelp explains the rows of formatMasks.
const rowsHelp = `A row has a # for each chunk that is true in the mask, and a . for each other.
Of groups with more than 64 chunks a character stands for several; + says that
only some of them are true.`

// maskKinds are the masks that can be asked for.
var maskKinds = []string{"load", "store", "lookup"}

// maskRequest is what is asked of a prompt for its masks.
type maskRequest struct {
	tokens, hashes, start uint32
	prompt                int64
}

// newMasksCmd returns the command that asks for masks.
func newMasksCmd() *cobra.Command {
	var t target
	var r maskRequest
	cmd := &cobra.Command{
		Use:   "masks load|store|lookup --tokens N",
		Short: "Print which chunks of a prompt to load, store or look up",
		Long: `masks prints the masks of vLLM's coordinator for the server's pool, for each
group a row of its chunks:

  load    the chunks that must be loaded for a prompt to be served its first
          --tokens tokens, which are a hit; needs --hashes
  store   those of the first --tokens tokens that are worth storing; takes
          --start-token and --prompt-tokens
  lookup  those of the first --tokens tokens that a lookup checks

` + rowsHelp + `

With --json: {"masks": [{"group": …, "first": …, "end": …, "all": …,
"runs": [[start, end], …]}]}, as hitline plan prints them.`,
		Example:   "  hitline masks store --tokens 128 --prompt-tokens 130\n  hitline masks load --tokens 128 --hashes 8",
		ValidArgs: maskKinds,
		Args:      cli.OneArg("mask", maskKinds...),
	}
	cmd.Flags().Uint32Var(&r.tokens, "tokens", 0, "how many leading `tokens` of the prompt it is about (required)")
	cmd.Flags().Uint32Var(&r.hashes, "hashes", 0, "how many `hashes` the prompt has (required by load)")
	startFlag(cmd, &r.start)
	promptFlag(cmd, &r.prompt)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := t.check(); err != nil {
			return err
		}
		if err := checkMaskFlags(cmd, args[0]); err != nil {
			return err
		}
		masks, err := ask(cmd.Context(), &t, func(ctx context.Context, c *client.Client) ([]api.GroupMask, error) {
			return r.ask(ctx, c, args[0])
		})
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string][]jsonMask{"masks": jsonMasks(masks)}, formatMasks(masks, nil))
	}
	return cmd
}

// checkMaskFlags refuses flags that a kind of mask lacks or does not have.
func checkMaskFlags(cmd *cobra.Command, kind string) error {
	if err := requireFlag(cmd, "tokens"); err != nil {
		return err
	}
	if kind == "load" {
		if err := requireFlag(cmd, "hashes"); err != nil {
			return err
		}
	}
	for flag, of := range map[string]string{"hashes": "load", "start-token": "store", "prompt-tokens": "store"} {
		if kind != of && cmd.Flags().Changed(flag) {
			return usagef("--%s is of masks %s", flag, of)
		}
	}
	return nil
}

// ask asks for masks of a kind.
func (r *maskRequest) ask(ctx context.Context, c *client.Client, kind string) ([]api.GroupMask, error) {
	switch kind {
	case "load":
		return c.LoadMask(ctx, int64(r.tokens), int(r.hashes))
	case "store":
		return c.StoreMask(ctx, int64(r.tokens), int64(r.start), r.prompt)
	}
	return c.LookupMask(ctx, int64(r.tokens))
}

// startFlag defines the flag of the token where storing begins.
func startFlag(cmd *cobra.Command, start *uint32) {
	cmd.Flags().Uint32Var(start, "start-token", 0, "`token` up to which chunks were stored before (default 0)")
}

// promptFlag defines the flag of the prompt's length.
func promptFlag(cmd *cobra.Command, prompt *int64) {
	cmd.Flags().Int64Var(prompt, "prompt-tokens", coordinator.NoPrompt, "length of the whole prompt: `n` tokens (default unknown)")
	cmd.Flags().Lookup("prompt-tokens").DefValue = "0" // help does not show a zero
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
