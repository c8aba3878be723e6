package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// keysRequest is a request of the client about keys of one place.
type keysRequest func(c *client.Client, ctx context.Context, place netproto.GroupRank, keys netproto.Hashes) error

// newStore returns the command that adds keys to the pool index.
func newStore() *cobra.Command {
	var chunk uint32
	var before string
	var key []byte
	request := func(c *client.Client, ctx context.Context, place netproto.GroupRank, keys netproto.Hashes) error {
		if before == "" && chunk == netproto.FirstChunkUnknown {
			return c.Store(ctx, place, keys)
		}
		return c.StoreChain(ctx, place, chunk, key, keys)
	}
	cmd := newKeys(request, "stored")
	cmd.Flags().Uint32Var(&chunk, "chunk", netproto.FirstChunkUnknown, "`number` of the first chunk in its chain, from 0; what is stored under its numbers can be looked up by anchors (default not told)")
	cmd.Flags().Lookup("chunk").DefValue = "0" // which is not shown
	cmd.Flags().StringVar(&before, "before", "", "the key in front of the first chunk, in `hex`")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if key, err = hex.DecodeString(before); err != nil {
			return usagef("--before %q is no hash in hexadecimal digits: %v", before, err)
		}
		return nil
	}
	cmd.Use = "store --group G --hashes-file FILE"
	cmd.Short = "Tell the server that blocks are in the pool"
	cmd.Long = `store adds keys, consecutive chunks of one group, as held by one rank.

--tp-rank is the rank that the engine's keys name, the KV shard: the worker's
tensor rank divided by the number of ranks that hold equal blocks. With 4 tensor
ranks and 2 KV heads there are the shards 0 and 1. A shard that the group does not
have is refused.

With --json: {"stored": number of keys}`
	cmd.Example = "  hitline store --group 0 --hashes-file prompt.hex"
	return cmd
}

// newEvict returns the command that takes keys out of the pool index.
func newEvict() *cobra.Command {
	cmd := newKeys((*client.Client).Evict, "evicted")
	cmd.Use = "evict --group G --hashes-file FILE"
	cmd.Short = "Tell the server that blocks have left the pool"
	cmd.Long = `evict takes keys of one group away from one rank. Keys that are not there are no
mistake.

With --json: {"evicted": number of keys}`
	cmd.Example = "  hitline evict --group 0 --tp-rank 1 --hashes-file prompt.hex"
	return cmd
}

// newKeys returns a command that sends a hashes file for a place; done is the
// past participle of what it does.
func newKeys(request keysRequest, done string) *cobra.Command {
	var t target
	var place netproto.GroupRank
	cmd := &cobra.Command{Args: noArgs}
	t.addFlags(cmd)
	cmd.Flags().Uint16Var(&place.Group, "group", 0, "`number` of the group, in the order of the pool's groups, from 0 (default 0)")
	cmd.Flags().Uint16Var(&place.TPRank, "tp-rank", 0, "tensor-parallel `rank` of the engine's keys, the KV shard, from 0 (default 0)")
	cmd.Flags().Uint16Var(&place.PPRank, "pp-rank", 0, "pipeline-parallel `rank`, from 0 (default 0)")
	cmd.Flags().Uint16Var(&place.PCPRank, "pcp-rank", 0, "prefill-context-parallel `rank`, from 0 (default 0)")
	file := hashesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		keys, err := loadHashes(cmd, *file)
		if err != nil {
			return err
		}
		if keys.count() == 0 {
			return configError(fmt.Errorf("%s holds no hashes; give at least one", *file))
		}
		err = t.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			return request(c, ctx, place, netproto.NewHashes(keys.blob, keys.hashLen))
		})
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]int{done: keys.count()}, fmt.Sprintf("%s %d", done, keys.count()))
	}
	return cmd
}
