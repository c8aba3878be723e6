package lookuptest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// KeyStore is a backend in memory that a test can make slow or wrong. The zero value is
// empty.
type KeyStore struct {
	backend.Plain
	mu   sync.Mutex
	Keys map[string]bool // must not be accessed during calls

	// Before, if not nil, runs at the beginning of each call. Its error becomes the call's.
	Before func(ctx context.Context, op string, keys []string) error
	// Answer, if not nil, replaces the answers of Exists.
	Answer func(answers []int) []int

	Calls, Resets atomic.Int64 // of all methods, and of Reset alone
}

var _ backend.Backend = (*KeyStore)(nil)

// ErrStore is the error of a failing test backend.
var ErrStore = errors.New("the test store fails")

// Name implements backend.Backend.
func (k *KeyStore) Name() string { return "keys" }

// Close implements backend.Backend.
func (k *KeyStore) Close() error { return nil }

// enter counts a call and runs Before.
func (k *KeyStore) enter(ctx context.Context, op string, keys []string) error {
	k.Calls.Add(1)
	if k.Before != nil {
		if err := k.Before(ctx, op, keys); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Exists implements backend.Backend.
func (k *KeyStore) Exists(ctx context.Context, asked backend.Keys, _ bool) ([]int, error) {
	keys := asked.Strings()
	if err := k.enter(ctx, "exists", keys); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	answers := make([]int, len(keys))
	for i, key := range keys {
		if k.Keys[key] {
			answers[i] = 1
		}
	}
	if k.Answer != nil {
		answers = k.Answer(answers)
	}
	return answers, nil
}

// Store implements backend.Backend.
func (k *KeyStore) Store(ctx context.Context, keys []string) error {
	if err := k.enter(ctx, "store", keys); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Keys == nil {
		k.Keys = map[string]bool{}
	}
	for _, key := range keys {
		k.Keys[key] = true
	}
	return nil
}

// Evict implements backend.Backend.
func (k *KeyStore) Evict(ctx context.Context, keys []string) error {
	if err := k.enter(ctx, "evict", keys); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		delete(k.Keys, key)
	}
	return nil
}

// Reset implements backend.Backend.
func (k *KeyStore) Reset(ctx context.Context) error {
	k.Resets.Add(1)
	if err := k.enter(ctx, "reset", nil); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.Keys)
	return nil
}

// Gate blocks calls of a KeyStore until it is opened.
type Gate struct {
	Held atomic.Int64  // calls that have reached it
	Open chan struct{} // the test closes it to open the gate
}

// NewGate returns a gate that is not open.
func NewGate() *Gate { return &Gate{Open: make(chan struct{})} }

// Wait waits until the gate is open or ctx ends.
func (g *Gate) Wait(ctx context.Context) error {
	g.Held.Add(1)
	select {
	case <-g.Open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Holding makes the store wait at the gate in calls of one op with a key that ends in key.
// "" means any op, and any key.
func (k *KeyStore) Holding(g *Gate, op, key string) {
	k.Before = func(ctx context.Context, called string, keys []string) error {
		if (op == "" || called == op) && (key == "" || slices.ContainsFunc(keys, func(k string) bool { return strings.HasSuffix(k, key) })) {
			return g.Wait(ctx)
		}
		return nil
	}
}

// fill stores the keys under which a service of Blocks16 finds the chains, of hashes of 32
// bytes.
func (k *KeyStore) fill(chains ...[]byte) error {
	c, err := coordinator.New(Blocks16)
	if err != nil {
		return err
	}
	for _, chain := range chains {
		hashes := coordinator.NewHashes(chain, 32)
		keys := coordinator.JoinKeys(c.KeyPrefix(0, c.Ranks(0)[0]), hashes.Len(), 32, hashes.All())
		if err := k.Store(context.Background(), keys); err != nil {
			return err
		}
	}
	return nil
}

// Filled returns a store that is filled with the chains.
func Filled(t testing.TB, chains ...[]byte) *KeyStore {
	t.Helper()
	store := &KeyStore{}
	require.NoError(t, store.fill(chains...))
	return store
}
