package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// storePromptFlags are the flags of store-prompt that say what is stored.
type storePromptFlags struct {
	tokens, start uint32
	prompt        int64
	first         int
	ranks, states []string
}

// newStorePromptCmd returns the command that stores what the store mask keeps of a prompt.
func newStorePromptCmd() *cobra.Command {
	var t target
	var f storePromptFlags
	cmd := &cobra.Command{
		Use:   "store-prompt --tokens N --hashes-file FILE",
		Short: "Tell the server that a prompt is in the pool",
		Long: `store-prompt adds the chunks of a prompt's first --tokens tokens that the store
mask keeps, of all groups, as held by all ranks or those of --rank. It prints
how many chunks of each group were stored.

From vLLM 0.29.0 on no mask has the states of mamba groups: --state names each.
Without one for each mamba group the prompt is refused.

With --json: {"stored": [chunks of each group]}`,
		Example: "  seq 64 | hitline hash | hitline store-prompt --tokens 64 --hashes-file -\n  hitline store-prompt --tokens 128 --hashes-file prompt.hex --rank 0",
		Args:    cli.NoArgs,
	}
	file := f.add(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := f.parse()
		if err != nil {
			return err
		}
		hashes, err := t.loadPrompt(cmd, *file)
		if err != nil {
			return err
		}
		stored, err := ask(cmd.Context(), &t, func(ctx context.Context, c *client.Client) ([]int64, error) {
			return c.StorePrompt(ctx, p, hashes.forRequest())
		})
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string][]int64{"stored": stored}, formatStored(stored))
	}
	return cmd
}

// add defines the flags. It returns the name of the hashes file.
func (f *storePromptFlags) add(cmd *cobra.Command) (file *string) {
	cmd.Flags().Uint32Var(&f.tokens, "tokens", 0, "how many leading `tokens` of the prompt are stored (required)")
	file = hashesFlag(cmd)
	cmd.Flags().Uint32Var(&f.start, "start-token", 0, "`token` up to which chunks were stored before (default 0)")
	cmd.Flags().Int64Var(&f.prompt, "prompt-tokens", coordinator.NoPrompt, "length of the whole prompt: `n` tokens (default unknown)")
	cmd.Flags().Lookup("prompt-tokens").DefValue = "0" // help does not show a zero
	cmd.Flags().IntVar(&f.first, "first-hash", 0, "`number` of the first hash of the file (default 0)")
	cmd.Flags().StringArrayVar(&f.ranks, "rank", nil, "a rank that holds the chunks, as `tp,pp,pcp`; tp is the KV shard, pp and pcp may be left out; repeatable (default all)")
	cmd.Flags().StringArrayVar(&f.states, "state", nil, "a state, as `group:token`: its mamba group, and the token at which it ends, 0 for none; repeatable")
	return file
}

// parse returns the request that the flags ask for.
func (f *storePromptFlags) parse() (p api.PromptStore, err error) {
	p = api.PromptStore{
		NumTokens: int64(f.tokens), StartToken: int64(f.start), PromptTokens: max(f.prompt, 0), FirstHash: f.first,
	}
	if p.Ranks, err = parseRanks(f.ranks); err != nil {
		return p, err
	}
	p.States, err = parseStates(f.states)
	return p, err
}

// parseRanks parses ranks, each tp,pp,pcp; what is missing at the end is 0.
func parseRanks(texts []string) (ranks []coordinator.GroupRank, err error) {
	for _, text := range texts {
		var numbers [3]uint16
		parts := strings.Split(text, ",")
		for i, part := range parts {
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil || len(parts) > len(numbers) {
				return nil, usagef("--rank %q is not tp,pp,pcp, such as 1,0,0", text)
			}
			numbers[i] = uint16(n)
		}
		ranks = append(ranks, coordinator.GroupRank{TPRank: numbers[0], PPRank: numbers[1], PCPRank: numbers[2]})
	}
	return ranks, nil
}

// parseStates parses states, each group:token.
func parseStates(texts []string) (states []api.State, err error) {
	for _, text := range texts {
		group, token, _ := strings.Cut(text, ":")
		g, errGroup := strconv.ParseUint(group, 10, 16)
		n, errToken := strconv.ParseUint(token, 10, 32)
		if errGroup != nil || errToken != nil {
			return nil, usagef("--state %q is not group:token, such as 1:128", text)
		}
		states = append(states, api.State{Group: int(g), Tokens: int64(n)})
	}
	return states, nil
}

// formatStored writes how many chunks of each group were stored, a line each.
func formatStored(stored []int64) string {
	var b strings.Builder
	for g, n := range stored {
		fmt.Fprintf(&b, "group %d: stored %d\n", g, n)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
