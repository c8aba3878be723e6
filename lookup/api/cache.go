package api

import (
	"context"

	"github.com/hitline/hitline/netproto"
)

// Hit is the answer to a lookup.
type Hit struct {
	// Tokens is how many leading tokens of the prompt are in the pool and loadable.
	Tokens int64
}

// PrefixCache is the index of one pool's blocks: in this process (lookup.Service) or
// behind a server (client.Client). Numbers of tokens are those of a prompt. Hashes and
// keys are only borrowed until a method returns. A key is the last block hash of a chunk
// of the group, and a store brings consecutive chunks.
//
// All methods are safe for concurrent use. They wait at most until ctx ends; over the
// memory index of this process they do not wait at all.
type PrefixCache interface {
	// Lookup returns the hit of a prompt of numTokens tokens with these block hashes.
	Lookup(ctx context.Context, numTokens int64, hashes netproto.Hashes) (Hit, error)
	// Explain tells for each group where its part of the hit ends, and counts nothing.
	Explain(ctx context.Context, numTokens int64, hashes netproto.Hashes) (Explanation, error)
	// Store adds keys to a group rank.
	Store(ctx context.Context, at netproto.GroupRank, keys netproto.Hashes) error
	// StoreChain is Store for keys whose position is known: the first is chunk number
	// firstChunk of its group, or netproto.FirstChunkUnknown, and before, if not empty,
	// is the key in front of it.
	StoreChain(ctx context.Context, at netproto.GroupRank, firstChunk uint32, before []byte, keys netproto.Hashes) error
	// Evict removes keys from a group rank.
	Evict(ctx context.Context, at netproto.GroupRank, keys netproto.Hashes) error
	// Reset removes every block.
	Reset(ctx context.Context) error
}
