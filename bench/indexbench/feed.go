package indexbench

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/index"
)

// feedBatch is how many hashes are stored at once; it divides ChainLen.
const feedBatch = 128

// feed stores ever new chains. Where it evicts, it does so while it stores one with
// an even number: by its keys, one stored a while before. So half of what goes is
// evicted on request and the rest by the bound.
type feed struct {
	x       subject
	seed    seed
	hashLen int
	chains  int  // number of the chain under way
	lag     int  // how many chains ago the evicted one was stored; odd, so each goes once
	evicts  bool // else everything goes by the bound
	at      int  // hashes of the chain that are stored
	writer  *index.Writer
	in, out *rand.ChaCha8 // the hashes of the chain stored and of the one evicted
	buf     []byte
}

// newFeed returns a feed whose chains are numbered from first, for an index that
// has room for so many of them.
func newFeed(x subject, keys seed, hashLen, first, room int) *feed {
	f := &feed{x: x, seed: keys, hashLen: hashLen, chains: first - 1, lag: room/2 | 1, buf: make([]byte, feedBatch*hashLen)}
	f.nextChain()
	return f
}

func (f *feed) nextChain() {
	f.chains++
	f.at = 0
	f.writer = new(index.Writer)
	f.in = f.seed.stream(streamFeed, uint64(f.chains))
	f.out = nil
	if f.evicts && f.chains%2 == 0 && f.chains >= f.lag {
		f.out = f.seed.stream(streamFeed, uint64(f.chains-f.lag))
	}
}

// batch stores the next hashes and evicts as many old ones of every other chain.
func (f *feed) batch() error {
	if f.at == ChainLen {
		f.nextChain()
	}
	_, _ = f.in.Read(f.buf) // documented never to fail
	if err := f.x.store(f.writer, f.buf, f.hashLen); err != nil {
		return err
	}
	f.at += feedBatch
	if f.out == nil {
		return nil
	}
	_, _ = f.out.Read(f.buf)
	_, err := f.x.evict(f.buf, f.hashLen)
	return err
}

// chain stores a whole chain.
func (f *feed) chain() error {
	for range ChainLen / feedBatch {
		if err := f.batch(); err != nil {
			return err
		}
	}
	return nil
}

// run stores at a steady rate of entries a second until ctx is done, and counts
// them. Where it falls behind it stores without a pause.
func (f *feed) run(ctx context.Context, rate int, stored *atomic.Int64) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	start := time.Now()
	for n := 0; ; n += feedBatch {
		due := start.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
		pause.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		if err := f.batch(); err != nil {
			return err
		}
		stored.Add(feedBatch)
	}
}
