package replay

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"

	"github.com/stretchr/testify/assert"
)

// fakeIndex is an unbounded index in a Go map, shared by the connections to it.
type fakeIndex struct {
	mu     sync.Mutex
	stored map[string]bool
}

// fake is one connection to a fakeIndex. The hooks, if set, are told the number
// of the call, from 1.
type fake struct {
	t         *testing.T
	index     *fakeIndex
	lookups   int
	stores    int
	answer    func(call int, right uint32) (uint32, error)
	failStore func(call int) error
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, index: &fakeIndex{stored: map[string]bool{}}}
}

func (f *fake) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	f.lookups++
	_, limited := ctx.Deadline()
	assert.True(f.t, limited, "a lookup has a deadline")
	if len(hashes) == 0 {
		assert.Zero(f.t, length, "no hashes")
		assert.Zero(f.t, numTokens, "no hashes")
	} else {
		assert.Equal(f.t, workload.HashLen, length)
		assert.Zero(f.t, len(hashes)%length)
	}
	right := f.index.hit(numTokens, hashes)
	if f.answer == nil {
		return right, nil
	}
	return f.answer(f.lookups, right)
}

// hit returns the tokens of the leading hashes that are stored.
func (i *fakeIndex) hit(numTokens uint32, hashes []byte) uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := len(hashes) / workload.HashLen
	for k := range n {
		if !i.stored[string(hashes[k*workload.HashLen:][:workload.HashLen])] {
			return uint32(k) * (numTokens / uint32(n))
		}
	}
	return numTokens
}

func (f *fake) Store(ctx context.Context, keys []byte, length int) error {
	f.stores++
	_, limited := ctx.Deadline()
	assert.True(f.t, limited, "a store has a deadline")
	assert.Equal(f.t, workload.HashLen, length)
	if len(keys) == 0 || len(keys)%length != 0 {
		return fmt.Errorf("%w: store of %d bytes", measure.ErrRefused, len(keys))
	}
	if f.failStore != nil {
		if err := f.failStore(f.stores); err != nil {
			return err
		}
	}
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	for at := 0; at < len(keys); at += length {
		f.index.stored[string(keys[at:][:length])] = true
	}
	return nil
}

// refusedFor is the error of a server that does not serve.
func refusedFor(reason string) error { return fmt.Errorf("%w: %s", measure.ErrRefused, reason) }
