package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/router"
	routerclient "github.com/hitline/hitline/router/client"
)

// holdersFlags are the flags of the command holders that say what is asked.
type holdersFlags struct {
	query                  routerclient.Query
	hashesFile, tokensFile string
}

// newHoldersCmd returns the command that asks which engines have most of a prompt.
func newHoldersCmd() *cobra.Command {
	t := askingHTTP()
	var f holdersFlags
	cmd := &cobra.Command{
		Use:   "holders (--hashes-file FILE | --tokens-file FILE)",
		Short: "Ask which engines have most of a prompt",
		Long: `holders asks a server that follows the KV events of engines, at router.listen,
which of them have most of a prompt. It prints a line for each, the longest
prefix first: its tokens, those in each medium, and those of each rank.

Give the hashes of the prompt's whole blocks, or its token ids if router.models
has the engines' hash. With --loadable it also prints how many leading tokens
the shared store can load. "unsure" names engines that may have other blocks
than that: stale ones cannot be reached.`,
		Example: "  hitline holders --hashes-file prompt.hex\n  seq 64 | hitline holders --model llama --tokens-file - --loadable",
		Args:    cli.NoArgs,
	}
	f.add(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := f.ask(cmd, &t)
		if err != nil {
			return err
		}
		if f.tokensFile != "" && isUnsure(answer, routerclient.ReasonDiffer) {
			f.warnDiffering(cmd.Context(), &t)
		}
		if slices.Contains(answer.Unsure[f.query.Engine], routerclient.ReasonUnknown) {
			t.warn(fmt.Sprintf("the server follows no engine %q; hitline router lists them", f.query.Engine))
		}
		return cli.PrintResult(cmd, t.json, answer.JSON, formatAnswer(answer))
	}
	return cmd
}

// add defines the flags.
func (f *holdersFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Model, "model", "", "`name` of the model (default the only one)")
	flags.StringVar(&f.query.Tenant, "tenant", "", "`name` of its tenant (default \"default\")")
	flags.StringVar(&f.query.Engine, "engine", "", "ask about the engine of this `name` alone")
	flags.BoolVar(&f.query.LastKnown, "last-known", false, "count what stale engines had last, too")
	flags.BoolVar(&f.query.Loadable, "loadable", false, "ask the shared store, too")
	flags.BoolVar(&f.query.KVHints, "kv-hints", false, "ask how another engine can fetch the prefix, too")
	flags.IntVar(&f.query.BlockSize, "block-size", 0, "`tokens` of a block, which the server compares with its own")
	flags.Int64Var(&f.query.NumTokens, "tokens", 0, "length of the prompt in `tokens`, for --loadable")
	flags.StringVar(&f.hashesFile, "hashes-file", "", "`file` with one hash in hex a line; - is standard input")
	flags.StringVar(&f.tokensFile, "tokens-file", "", "`file` with the token ids; - is standard input")
	flags.StringVar(&f.query.LoRAName, "lora", "", "`name` of the LoRA adapter, for --tokens-file")
	flags.StringVar(&f.query.LoRAPath, "lora-path", "", "`path` of the adapter (vLLM 0.31.0 on)")
	flags.StringVar(&f.query.CacheSalt, "salt", "", "the request's cache salt, any `text`, for --tokens-file")
}

// check returns an error for flags that contradict each other.
func (f *holdersFlags) check(cmd *cobra.Command) error {
	switch {
	case f.hashesFile == "" && f.tokensFile == "":
		return usagef("--hashes-file or --tokens-file is required")
	case f.hashesFile != "" && f.tokensFile != "":
		return usagef("--hashes-file and --tokens-file: give one of them")
	case f.query.NumTokens < 0:
		return usagef("--tokens %d is negative", f.query.NumTokens)
	case f.query.BlockSize < 0:
		return usagef("--block-size %d is negative", f.query.BlockSize)
	case f.query.LoRAPath != "" && f.query.LoRAName == "":
		return usagef("--lora-path needs --lora")
	case cmd.Flags().Changed("tokens") && (!f.query.Loadable || f.hashesFile == ""):
		return usagef("--tokens is of no use without --loadable and --hashes-file")
	case f.tokensFile != "":
		return nil
	}
	for _, name := range []string{"lora", "lora-path", "salt"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is of no use without --tokens-file", name)
		}
	}
	return nil
}

// ask reads the prompt and asks about it.
func (f *holdersFlags) ask(cmd *cobra.Command, t *target) (*routerclient.Answer, error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if f.tokensFile != "" {
		tokens, err := (&hashOptions{file: f.tokensFile}).loadTokens(cmd)
		if err != nil {
			return nil, err
		}
		f.query.Tokens = append([]int64{}, tokens...) // not nil: those of no token
	} else {
		list, err := loadHashes(cmd, f.hashesFile)
		if err != nil {
			return nil, err
		}
		f.query.Hashes = coordinator.NewHashes(list.blob, list.hashLen)
	}
	return askRouter(cmd.Context(), t, func(ctx context.Context, c *routerclient.Client) (*routerclient.Answer, error) {
		return c.Query(ctx, &f.query)
	})
}

// warnDiffering warns if no engine of the model is known to hash token ids as the server does.
func (f *holdersFlags) warnDiffering(ctx context.Context, t *target) {
	services, err := askServices(ctx, t)
	if err != nil {
		t.warn(fmt.Sprintf("GET /services does not say why hashes differ: %v", err))
		return
	}
	for _, m := range services.Models {
		if !m.HashesDiffer || m.Tenant != cmp.Or(f.query.Tenant, router.DefaultTenant) || f.query.Model != "" && m.Name != f.query.Model {
			continue
		}
		for _, s := range services.Sources {
			if s.Tenant == m.Tenant && s.Model == m.Name && s.Hashes == routerclient.ReasonDiffer {
				t.warn(fmt.Sprintf("no engine of model %q is known to hash token ids as its hash says: %s", m.Name, s.HashesReason))
				break
			}
		}
	}
}

// isUnsure reports whether an engine is unsure for a reason.
func isUnsure(a *routerclient.Answer, reason string) bool {
	for _, reasons := range a.Unsure {
		if slices.Contains(reasons, reason) {
			return true
		}
	}
	return false
}

// mediaOf returns the media in which an engine has blocks, by name. Predictions are the last.
func mediaOf(a *routerclient.Answer) []string {
	seen := map[string]bool{}
	for _, e := range a.Engines {
		for medium, tokens := range e.Media {
			if tokens > 0 {
				seen[medium] = true
			}
		}
	}
	list := slices.Sorted(maps.Keys(seen))
	if n := slices.Index(list, routerclient.Predicted); n >= 0 {
		list = append(slices.Delete(list, n, n+1), routerclient.Predicted)
	}
	return list
}

// formatAnswer returns an answer as a table, with lines for the rest.
func formatAnswer(a *routerclient.Answer) string {
	var b strings.Builder
	if len(a.Engines) == 0 {
		b.WriteString("no engine has the first whole block; hitline router lists those that are followed\n")
	} else {
		b.WriteString(formatEngines(a) + "\n")
	}
	if a.LoadableTokens >= 0 {
		fmt.Fprintf(&b, "the store can load %d tokens\n", a.LoadableTokens)
	}
	if a.LoadableUnknown != "" {
		fmt.Fprintf(&b, "what the store can load is unknown: %s\n", printable.Text(a.LoadableUnknown))
	}
	for _, engine := range slices.Sorted(maps.Keys(a.KVHints)) {
		fmt.Fprintf(&b, "kv_hints to fetch from %s: %s\n", printable.Text(engine), printable.Text(string(a.KVHints[engine])))
	}
	var unsure []string
	for _, engine := range slices.Sorted(maps.Keys(a.Unsure)) {
		unsure = append(unsure, fmt.Sprintf("%s (%s)", engine, strings.Join(a.Unsure[engine], ", ")))
	}
	if len(unsure) > 0 {
		fmt.Fprintf(&b, "unsure: %s\n", printable.Text(strings.Join(unsure, ", ")))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// formatEngines returns a table with a line for each engine.
func formatEngines(a *routerclient.Answer) string {
	var table cli.Table
	media := mediaOf(a)
	row := func(engine, tokens any, inMedium func(medium string) any, ranks any) {
		cells := []any{engine, tokens}
		for _, medium := range media {
			cells = append(cells, inMedium(medium))
		}
		table.Row(append(cells, ranks)...)
	}
	row("engine", "tokens", func(medium string) any { return medium }, "ranks")
	for _, e := range a.Engines {
		var ranks []string
		for _, rank := range slices.Sorted(maps.Keys(e.Ranks)) {
			ranks = append(ranks, fmt.Sprintf("%d: %d", rank, e.Ranks[rank]))
		}
		row(e.Name, e.Tokens, func(medium string) any { return e.Media[medium] }, strings.Join(ranks, ", "))
	}
	return table.String()
}
