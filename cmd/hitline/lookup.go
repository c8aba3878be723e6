package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/lookup"
)

// newLookup returns the command that asks for a hit.
func newLookup() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "lookup --tokens N --hashes-file FILE",
		Short: "Ask how many leading tokens of a prompt are in the pool",
		Long: `lookup sends the hashes of a prompt's blocks and prints the hit in tokens.

With --json: {"hit_tokens": …, "num_tokens": …, "hashes": …}`,
		Example: "  hitline lookup --tokens 128 --hashes-file prompt.hex\n  seq -f '%064.0f' 8 | hitline lookup --tokens 128 --hashes-file -",
		Args:    noArgs,
	}
	t.addFlags(cmd)
	tokens := cmd.Flags().Uint32("tokens", 0, "length of the prompt in `tokens` (required)")
	file := hashesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		if !cmd.Flags().Changed("tokens") {
			return usagef("--tokens is required")
		}
		hashes, err := loadHashes(cmd, *file)
		if err != nil {
			return err
		}
		var hit uint32
		err = t.ask(cmd.Context(), func(ctx context.Context, c *lookup.Client) (err error) {
			hit, err = c.Lookup(ctx, *tokens, hashes.blob, hashes.hashLen)
			return err
		})
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, struct {
			HitTokens uint32 `json:"hit_tokens"`
			NumTokens uint32 `json:"num_tokens"`
			Hashes    int    `json:"hashes"`
		}{hit, *tokens, hashes.count()}, strconv.FormatUint(uint64(hit), 10))
	}
	return cmd
}
