package lookup_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// blockHashes stands for the hashes that an engine gives the blocks of a prompt:
// here 4 bytes each.
func blockHashes(prompt string) coordinator.Hashes { return coordinator.NewHashes([]byte(prompt), 4) }

// A program embeds the service and asks it in process, without a socket. Neither
// Store nor LookupPrompt keeps what it is given, and LookupPrompt does not allocate.
func ExampleNewService() {
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: coordinator.Pool{HashBlockSize: 16}, // one full-attention group
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(context.Background(), coordinator.GroupRank{}, blockHashes("aaaabbbbcccc")); err != nil {
		log.Fatal(err)
	}
	hashes := blockHashes("aaaabbbbddddeeee")
	hit, err := service.LookupPrompt(context.Background(), 70, hashes) // 4 whole blocks, and 6 tokens more
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hit.Tokens, "of 70 tokens")
	// Output: 32 of 70 tokens
}

// dictionary is a store that the embedding program brings along.
type dictionary struct {
	backend.Plain
	mu   sync.Mutex
	keys map[string]bool
}

func (d *dictionary) Name() string { return "dictionary" }
func (d *dictionary) Close() error { return nil }

func (d *dictionary) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answers := make([]int, keys.Len())
	for i, key := range keys.Strings() {
		if d.keys[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

func (d *dictionary) Store(_ context.Context, keys []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		d.keys[strings.Clone(key)] = true // keys are borrowed
	}
	return nil
}

func (d *dictionary) Evict(context.Context, []string) error { return backend.ErrReadOnly }
func (d *dictionary) Reset(context.Context) error           { return backend.ErrReadOnly }

// A service over a store of the program's own.
func ExampleNewService_backend() {
	store := &dictionary{keys: map[string]bool{}}
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool:    coordinator.Pool{ModelName: "m", HashBlockSize: 16},
		Backend: store,
		Remote:  lookup.RemoteConfig{Timeout: time.Second},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(context.Background(), coordinator.GroupRank{}, blockHashes("aaaabbbb")); err != nil {
		log.Fatal(err)
	}
	hit, err := service.Lookup(context.Background(), 48, blockHashes("aaaabbbbcccc"))
	fmt.Println(hit.Tokens, err)
	fmt.Println(service.Stat().Backend)
	// Output:
	// 32 <nil>
	// dictionary
}
