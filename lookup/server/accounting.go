package server

import (
	"context"
	"sync"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/tokens"
)

// accounting is the account of the server's pools, the goroutine that keeps it, and one that looks at their store.
type accounting struct {
	*tokens.Accounts
	firstLook, secondLook time.Duration // see tokens.Pool

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// newAccounting returns accounts of at most AccountBytes a pool, and a part of the memory account for all.
func newAccounting(config *Config) *accounting {
	cfg := tokens.Config{MaxBytes: config.AccountBytes, Reserve: config.Memory.Reserve, Free: config.Memory.Free, Now: monotime.Now}
	if _, most, _ := config.Memory.Usage(); most > 0 {
		cfg.MaxTotalBytes = int(min(most/2, tokens.DefaultMaxTotalBytes))
	}
	if config.Backend != nil {
		cfg.Epoch = config.Backend.Generation
	}
	return &accounting{Accounts: tokens.NewAccounts(cfg), firstLook: config.FirstLook, secondLook: config.SecondLook, cancel: func() {}}
}

func (a *accounting) start() {
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.ended.Go(func() { a.Run(ctx) })
	a.ended.Go(func() { a.RunLooks(ctx) })
}

// stop counts what is open. Nothing must be recorded after it.
func (a *accounting) stop() {
	a.cancel()
	a.ended.Wait()
}

// openAccount returns the account of a pool, nil if there are none.
func (a *accounting) openAccount(service *lookup.Service) *tokens.Account {
	coord, config := service.Coordinator(), service.Pool()
	scratch := sync.Pool{New: func() any { return new(coordinator.Scratch) }}
	pool := tokens.Pool{
		FullStride: 1,
		HashBlock:  int64(config.HashBlockSize), SchedulerBlock: int64(config.SchedulerBlockSize),
		Stores: service.Backend() == nil, Keys: coord.KeysBefore,
		FirstLook: a.firstLook, SecondLook: a.secondLook,
		Reachable: func(p tokens.Prompt, blocks int) int64 {
			s := scratch.Get().(*coordinator.Scratch)
			defer scratch.Put(s)
			before := int(p.Start / int64(config.HashBlockSize))
			return coord.PrefixHit(p.NumTokens, before+p.NumHashes, blocks, s)
		},
	}
	pool.Size = func(ctx context.Context) (int64, error) { return service.NumBlocks(ctx, a.Number() == 1) }
	if !pool.Stores {
		pool.Look = func(ctx context.Context, m *tokens.Missing) ([]int, error) {
			return service.Backend().Look(ctx, m.Groups, m.Hashes)
		}
	}
	for g, places := range service.Places() {
		bits := uint64(0)
		for _, place := range places {
			bits |= tokens.RankBit(place)
		}
		pool.Ranks = append(pool.Ranks, bits)
		pool.NumRanks = append(pool.NumRanks, len(coord.Ranks(g)))
		pool.Strides = append(pool.Strides, coord.KeyStride(g))
		if coord.Group(g).Kind.IsFull() {
			pool.FullRanks |= bits
			pool.FullStride = max(pool.FullStride, coord.KeyStride(g))
		}
	}
	return a.Open(pool)
}
