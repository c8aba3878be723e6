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
	"github.com/hitline/hitline/netproto"
)

// blockHashes stands for the hashes that an engine gives the blocks of a prompt:
// here 4 bytes each.
func blockHashes(prompt string) (joined []byte) {
	for i := range len(prompt) / 4 {
		joined = append(joined, prompt[4*i:4*i+4]...)
	}
	return joined
}

// A program embeds the service and asks it in process, without a socket. Neither
// Store nor LookupPrompt keeps what it is given, and LookupPrompt does not allocate.
func ExampleNewService() {
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: coordinator.Pool{HashBlockSize: 16}, // one full-attention group
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(lookup.Place{}, blockHashes("aaaabbbbcccc"), 4); err != nil {
		log.Fatal(err)
	}
	hashes := netproto.NewHashes(blockHashes("aaaabbbbddddeeee"), 4)
	hit, err := service.LookupPrompt(70, hashes) // 4 whole blocks, and 6 tokens more
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hit, "of 70 tokens")
	// Output: 32 of 70 tokens
}

// A service is served on a port of its own and asked over a socket.
func ExampleNewServer() {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	server, err := lookup.NewServer(service, lookup.ServerConfig{Listen: []string{"tcp://127.0.0.1:0"}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		log.Fatal(err)
	}

	client, err := lookup.Dial(ctx, server.Addrs()[0])
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Store(ctx, lookup.Place{}, blockHashes("aaaabbbb"), 4); err != nil {
		log.Fatal(err)
	}
	hit, err := client.Lookup(ctx, 64, blockHashes("aaaabbbbddddeeee"), 4)
	fmt.Println(hit, err)
	_ = client.Close()

	fmt.Println(server.Shutdown(ctx)) // drains, then closes
	// Output:
	// 32 <nil>
	// <nil>
}

// One scheduling step asks about all its requests at once.
func ExampleClient_Batch() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	client, err := lookup.Dial(ctx, address, lookup.WithPipeline(), lookup.WithFailOpen())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	asks := []lookup.Ask{
		{NumTokens: 64, Hashes: blockHashes("aaaabbbbccccdddd"), HashLen: 4},
		{NumTokens: 32, Hashes: blockHashes("aaaaxxxx"), HashLen: 4},
		{NumTokens: 17, Hashes: blockHashes("aaaabbbb"), HashLen: 4}, // no multiple of a block
	}
	if err := client.Batch(ctx, asks); err != nil {
		log.Print(err) // what was not answered counts as a miss
	}
	for _, a := range asks {
		fmt.Println(a.HitTokens, a.Err != nil)
	}
	// Output:
	// 64 false
	// 16 false
	// 0 true
}

// A scheduler polls once a step and does something else meanwhile.
func ExampleAsyncClient() {
	address, stop := serve()
	defer stop()
	client, err := lookup.DialAsync(context.Background(), address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	hashes := blockHashes("aaaabbbbzzzz")
	for step := 0; ; step++ {
		hit, ready, err := client.Poll("request 1", 48, hashes, 4)
		if !ready {
			time.Sleep(time.Millisecond) // the rest of the step
			continue
		}
		fmt.Println(hit, err) // where err is not nil, hit is 0
		break
	}
	client.Discard("request 2") // aborted: whatever was asked for it is forgotten
	// Output: 32 <nil>
}

// dictionary is a store that the embedding program brings along.
type dictionary struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (d *dictionary) Name() string { return "dictionary" }
func (d *dictionary) Close() error { return nil }

func (d *dictionary) Exists(_ context.Context, keys []string) ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answers := make([]int, len(keys))
	for i, key := range keys {
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
	if err := service.Store(lookup.Place{}, blockHashes("aaaabbbb"), 4); err != nil {
		log.Fatal(err)
	}
	hit, err := service.Lookup(48, netproto.NewHashes(blockHashes("aaaabbbbcccc"), 4))
	fmt.Println(hit, err)
	fmt.Println(service.Stat().Backend)
	// Output:
	// 32 <nil>
	// dictionary
}

// serve starts a server that holds the blocks aaaa, bbbb, cccc and dddd.
func serve() (address string, stop func()) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(lookup.Place{}, blockHashes("aaaabbbbccccdddd"), 4); err != nil {
		log.Fatal(err)
	}
	server, err := lookup.NewServer(service, lookup.ServerConfig{Listen: []string{"tcp://127.0.0.1:0"}, Loops: 1})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		log.Fatal(err)
	}
	return server.Addrs()[0], func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}
}
