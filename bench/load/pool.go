package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// commonTokens is a multiple of every block size that is likely, 2^14 * 3^2 * 5 * 7
// tokens: a server that was not described is asked for so many.
const commonTokens = 1 << 14 * 9 * 5 * 7

// learnPool returns the pool to measure. The zero value stands for one
// full-attention group whose blocks are one hash each: then the server is shown two
// hashes and asked how many tokens they are. What is described is compared with
// what the server tells.
func learnPool(ctx context.Context, c *wire.Control, o Options) (coordinator.Pool, error) {
	described, tokens := !reflect.DeepEqual(o.Pool, coordinator.Pool{}), uint32(commonTokens)
	coord, err := coordinator.New(o.Pool)
	if err != nil {
		return o.Pool, fmt.Errorf("%w: %w", measure.ErrOptions, err)
	}
	if described {
		tokens = uint32(coord.Alignment())
	}
	theirs, err := groupKinds(ctx, c, o, tokens)
	if described && errors.Is(err, measure.ErrAnswer) { // it does not explain, and need not
		return o.Pool, nil
	}
	if err != nil {
		return o.Pool, err
	}
	var ours []coordinator.Kind
	for g := range coord.NumGroups() {
		ours = append(ours, coord.Group(g).Kind)
	}
	if !slices.Equal(ours, theirs) {
		return o.Pool, measure.BadOptions("the server's groups are %v, those to measure %v; describe the server's pool, as its own configuration does", theirs, ours)
	}
	if !slices.Equal(ours, []coordinator.Kind{coordinator.FullAttention}) || coord.Stride(0) != 1 {
		return o.Pool, nil
	}
	block, whole, err := blockTokens(ctx, c, o)
	if !described {
		if err == nil && !whole {
			err = measure.BadOptions("a prompt that is stored whole hits less than its tokens at the server, as in a release of vLLM; describe the server's pool, as its own configuration does")
		}
		return coordinator.Pool{HashBlockSize: block}, err
	}
	if have := coord.Pool().HashBlockSize; err == nil && block != have {
		err = measure.BadOptions("a hash covers %d tokens at the server and %d here; describe the server's pool", block, have)
	}
	return o.Pool, err
}

// groupKinds asks the server for the kinds of its groups: its explanation of any
// lookup names them.
func groupKinds(ctx context.Context, c *wire.Control, o Options, tokens uint32) ([]coordinator.Kind, error) {
	text, err := c.Done(ctx, "explain", netproto.AppendExplain(nil, o.Dialect.Envelope(), tokens, hashLen, 0))
	if err != nil {
		return nil, err
	}
	var explained struct {
		Groups []struct{ Kind coordinator.Kind }
	}
	if err := json.Unmarshal(text, &explained); err != nil {
		return nil, fmt.Errorf("%w: explain: %w", measure.ErrAnswer, err)
	}
	kinds := make([]coordinator.Kind, len(explained.Groups))
	for i, g := range explained.Groups {
		kinds[i] = g.Kind
	}
	return kinds, nil
}

// blockTokens stores two hashes at the server, asks how many tokens one is and whether a
// prompt of both hits whole, and evicts them.
func blockTokens(ctx context.Context, c *wire.Control, o Options) (block int, whole bool, err error) {
	const hashes = 2
	blob := make([]byte, hashes*hashLen)
	_, _ = workload.Seed(o.Seed).Bytes(forProbe, 0).Read(blob) // never fails
	head := netproto.AppendKeys(nil, o.Dialect.Envelope(), netproto.TagStore, netproto.GroupRank{}, hashLen, len(blob))
	if _, err := c.Done(ctx, "store", head, blob); err != nil {
		return 0, false, err
	}
	var hits [2]uint64
	for i, tokens := range []uint64{commonTokens, 0} {
		if i == 1 {
			tokens = hits[0]
		}
		frames, err := c.Ask(ctx, netproto.AppendLookup(nil, o.Dialect.Envelope(), uint32(tokens), hashLen, len(blob)), blob)
		if err != nil {
			return 0, false, fmt.Errorf("lookup: %w", err)
		}
		hits[i] = netproto.ParseInt(frames[0])
		if tail, ok := wire.TailHit(frames); ok {
			hits[i], frames[0] = uint64(tail), frames[0][:4]
		}
		if hit := hits[i]; len(frames) != 1 || len(frames[0]) != 4 || i == 0 && (hit == 0 || hit%hashes != 0) || hit > tokens {
			return 0, false, fmt.Errorf("%w: to %d stored hashes the server answered %s; describe its pool", measure.ErrAnswer, hashes, wire.Describe(frames))
		}
	}
	head = netproto.AppendKeys(nil, o.Dialect.Envelope(), netproto.TagEvict, netproto.GroupRank{}, hashLen, len(blob))
	_, err = c.Done(ctx, "evict", head, blob)
	return int(hits[0] / hashes), hits[1] == hits[0], err
}
