package lookup

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/backend"
)

// keyStore is a backend that holds keys, and that a test may make slow or wrong.
type keyStore struct {
	mu   sync.Mutex
	keys map[string]bool

	// before, if set, runs at the beginning of each call; its error is the call's.
	before func(ctx context.Context, op string, keys []string) error
	// answer, if set, changes the answers of Exists.
	answer func(answers []int) []int

	calls, resets atomic.Int64
}

var _ backend.Backend = (*keyStore)(nil)

// errStore is what a failing test backend returns.
var errStore = errors.New("the test store fails")

func (k *keyStore) Name() string { return "keys" }
func (k *keyStore) Close() error { return nil }

func (k *keyStore) enter(ctx context.Context, op string, keys []string) error {
	k.calls.Add(1)
	if k.before != nil {
		if err := k.before(ctx, op, keys); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (k *keyStore) Exists(ctx context.Context, keys []string) ([]int, error) {
	if err := k.enter(ctx, "exists", keys); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	answers := make([]int, len(keys))
	for i, key := range keys {
		if k.keys[key] {
			answers[i] = 1
		}
	}
	if k.answer != nil {
		answers = k.answer(answers)
	}
	return answers, nil
}

func (k *keyStore) Store(ctx context.Context, keys []string) error {
	if err := k.enter(ctx, "store", keys); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[string]bool{}
	}
	for _, key := range keys {
		k.keys[key] = true
	}
	return nil
}

func (k *keyStore) Evict(ctx context.Context, keys []string) error {
	if err := k.enter(ctx, "evict", keys); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		delete(k.keys, key)
	}
	return nil
}

func (k *keyStore) Reset(ctx context.Context) error {
	k.resets.Add(1)
	if err := k.enter(ctx, "reset", nil); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.keys)
	return nil
}
