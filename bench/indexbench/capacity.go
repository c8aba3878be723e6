package indexbench

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

// CapacityRow is how many blocks of 512 tokens of a trace hit when only so many
// are kept. A request hits the blocks before the first that is gone; then all of
// its blocks are stored.
//
//   - Hitline: the index, bounded to so many entries.
//   - LRU: exact, block by block; a request uses its blocks head first.
//   - TailLRU: the same but tail first, so that a chain loses its end first; of a
//     request longer than the whole it keeps the beginning.
//   - Belady: what nobody can exceed who does not know the future. After each
//     request those blocks are kept, of all that were kept before or stored now,
//     that are used again soonest, as many as fit. Whoever uses a block uses those
//     before it a moment sooner, so no block is kept without its prefix, and the
//     rule of the prefix costs nothing: the sum is the exact optimum.
type CapacityRow struct {
	Capacity int64 `json:"capacity"`
	Hitline  int64 `json:"hitline"`
	LRU      int64 `json:"lru"`
	TailLRU  int64 `json:"tail_lru"`
	Belady   int64 `json:"belady"`
}

// capacities makes the rows.
func (o ReplayOptions) capacities(ctx context.Context) ([]CapacityRow, error) {
	requests, err := nodesOf(ctx, o.Trace)
	if err != nil {
		return nil, err
	}
	rows := make([]CapacityRow, 0, len(o.Capacities))
	for i, c := range o.Capacities {
		o.Progress("capacities", i, len(o.Capacities))
		hits, err := o.boundedHits(ctx, c)
		if err != nil {
			return rows, err
		}
		rows = append(rows, CapacityRow{
			Capacity: c, Hitline: hits,
			LRU: lruHits(requests, int(c), false), TailLRU: lruHits(requests, int(c), true),
			Belady: beladyHits(requests, int(c)),
		})
		if best := rows[i].Belady; hits > best {
			return rows, fmt.Errorf("%w: %d hits in %d entries, where %d is the most possible", ErrWrong, hits, c, best)
		}
	}
	o.Progress("capacities", len(o.Capacities), len(o.Capacities))
	return rows, nil
}

// boundedHits replays the trace to an index of so many entries.
func (o ReplayOptions) boundedHits(ctx context.Context, capacity int64) (int64, error) {
	x, err := o.open(capacity, capacity, traceHashLen)
	if err != nil {
		return 0, err
	}
	r := x.reader(traceHashLen)
	hits := int64(0)
	var hashes []byte
	err = o.Trace.Each(ctx, workload.BlockTokens, 0, func(_ int, ids []uint64) error {
		hashes = workload.AppendHashes(hashes[:0], ids, workload.BlockTokens)
		hits += int64(r.leading(hashes))
		return x.store(new(index.Writer), hashes, traceHashLen)
	})
	if n := x.stats().Entries; err == nil && n > capacity {
		err = fmt.Errorf("%w: %d entries under a bound of %d", ErrWrong, n, capacity)
	}
	return hits, err
}

// nodesOf reads a trace as numbers of blocks in their context: equal numbers mean
// equal prefixes.
func nodesOf(ctx context.Context, t workload.Trace) ([][]uint32, error) {
	type edge struct {
		id     uint64
		parent uint32
	}
	known := map[edge]uint32{}
	var requests [][]uint32
	err := t.Each(ctx, workload.BlockTokens, 0, func(_ int, ids []uint64) error {
		nodes := make([]uint32, len(ids))
		parent := uint32(0)
		for i, id := range ids {
			at := edge{id, parent}
			node, ok := known[at]
			if !ok {
				node = uint32(len(known)) + 1
				known[at] = node
			}
			nodes[i], parent = node, node
		}
		requests = append(requests, nodes)
		return nil
	})
	return requests, err
}
