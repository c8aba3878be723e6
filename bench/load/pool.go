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

// learnPool returns the pool to measure. The zero value stands for one
// full-attention group whose blocks are one hash each: then the server is shown two
// hashes and asked how many tokens they are. What is described is compared with
// what the server tells.
func learnPool(ctx context.Context, c *wire.Control, o Options) (coordinator.Pool, error) {
	described, tokens := !reflect.DeepEqual(o.Pool, coordinator.Pool{}), uint32(workload.ProbeTokens)
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
		return o.Pool, measure.BadOptions("the server's groups are %v, those to measure %v; give the server's configuration (--config), or its --groups", theirs, ours)
	}
	if !slices.Equal(ours, []coordinator.Kind{coordinator.FullAttention}) || coord.Stride(0) != 1 {
		return o.Pool, nil
	}
	block, whole, err := blockTokens(ctx, c, o)
	if !described {
		if err == nil && !whole {
			err = measure.BadOptions("the server's pool is of a release of vLLM, where a prompt that is stored whole hits less than its tokens; give the server's configuration (--config)")
		}
		return coordinator.Pool{HashBlockSize: block}, err
	}
	if have := coord.Pool().HashBlockSize; err == nil && block != have {
		err = measure.BadOptions("a hash covers %d tokens at the server and %d here; give the server's configuration (--config)", block, have)
	}
	return o.Pool, err
}

// groupKinds asks the server for the kinds of its groups: its explanation of any
// lookup names them.
func groupKinds(ctx context.Context, c *wire.Control, o Options, tokens uint32) ([]coordinator.Kind, error) {
	text, err := c.Done(ctx, "explain", netproto.AppendLookup(nil, o.Dialect.Envelope(), netproto.TagExplain, tokens, hashLen, 0))
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
	blob := make([]byte, workload.ProbeHashes*hashLen)
	_, _ = workload.Seed(o.Seed).Bytes(forProbe, 0).Read(blob) // never fails
	change := func(tag netproto.Tag) error {
		_, err := c.Done(ctx, tag.String(), netproto.AppendKeys(nil, o.Dialect.Envelope(), tag, netproto.WireRank{}, hashLen, len(blob)), blob)
		return err
	}
	found, end, err := workload.Probe(
		func() error { return change(netproto.TagStore) },
		func(tokens uint32) (uint32, error) { return probeHit(ctx, c, o, tokens, blob) },
		func() error { return change(netproto.TagEvict) },
	)
	return int(found / workload.ProbeHashes), end == found, err
}

// probeHit looks the stored hashes of a probe up in a prompt of so many tokens.
func probeHit(ctx context.Context, c *wire.Control, o Options, tokens uint32, blob []byte) (uint32, error) {
	frames, err := c.Ask(ctx, netproto.AppendLookup(nil, o.Dialect.Envelope(), netproto.TagLookup, tokens, hashLen, len(blob)), blob)
	if err != nil {
		return 0, fmt.Errorf("lookup: %w", err)
	}
	hit := netproto.ParseInt(frames[0])
	if tail, ok := wire.TailHit(frames); ok {
		hit, frames[0] = uint64(tail), frames[0][:4]
	}
	uneven := tokens == workload.ProbeTokens && (hit == 0 || hit%workload.ProbeHashes != 0)
	if len(frames) != 1 || len(frames[0]) != 4 || uneven || hit > uint64(tokens) {
		return 0, fmt.Errorf("%w: to %d stored hashes the server answered %s; give its configuration (--config)", measure.ErrAnswer, workload.ProbeHashes, wire.Describe(frames))
	}
	return uint32(hit), nil
}
