package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

// keysFunc sends a request about keys of one group rank.
type keysFunc func(c *client.Client, ctx context.Context, rank coordinator.GroupRank, keys coordinator.Hashes) error

// newStoreCmd returns the command that adds keys to the server's index.
func newStoreCmd() *cobra.Command {
	cmd := newKeysCmd((*client.Client).Store, "stored")
	cmd.Use = "store --hashes-file FILE"
	cmd.Short = "Tell the server that blocks are in the pool"
	cmd.Long = `store adds keys, consecutive chunks of one group, as held by one rank.

--tp-rank is the rank that the engine's keys name, the KV shard: the worker's
tensor rank divided by the number of ranks that hold equal blocks. With 4 tensor
ranks and 2 KV heads there are the shards 0 and 1. A shard that the group does
not have is refused.

With --json: {"stored": number of keys}`
	cmd.Example = "  seq 64 | hitline hash | hitline store --hashes-file -\n  hitline store --group 0 --hashes-file prompt.hex"
	return cmd
}

// newEvictCmd returns the command that removes keys from the server's index.
func newEvictCmd() *cobra.Command {
	cmd := newKeysCmd((*client.Client).Evict, "evicted")
	cmd.Use = "evict --hashes-file FILE"
	cmd.Short = "Tell the server that blocks have left the pool"
	cmd.Long = `evict removes keys of one group from one rank. Missing keys are ignored.

With --json: {"evicted": number of keys}`
	cmd.Example = "  seq 64 | hitline hash | hitline evict --hashes-file -\n  hitline evict --group 0 --tp-rank 0 --hashes-file prompt.hex"
	return cmd
}

// newKeysCmd returns a command that sends the keys of a hashes file. participle is the word
// for what was done with them.
func newKeysCmd(send keysFunc, participle string) *cobra.Command {
	var t target
	var rank coordinator.GroupRank
	cmd := &cobra.Command{Args: cli.NoArgs}
	rankFlags(cmd, &rank, "0")
	file := hashesFlag(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := requireFlags(cmd, "hashes-file"); err != nil {
			return err
		}
		keys, err := loadHashes(cmd, *file)
		if err != nil {
			return err
		}
		err = t.do(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			return send(c, ctx, rank, keys.forRequest())
		})
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string]int{participle: keys.count()}, fmt.Sprintf("%s %d", participle, keys.count()))
	}
	return cmd
}
