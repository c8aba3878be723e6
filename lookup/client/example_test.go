package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// blockHashes stands for the hashes that an engine gives the blocks of a prompt:
// here 4 bytes each.
func blockHashes(prompt string) netproto.Hashes { return netproto.NewHashes([]byte(prompt), 4) }

// One scheduling step asks about all its requests at once.
func ExampleClient_Batch() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address, client.WithPipeline(), client.WithFailOpen())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lookups := []client.BatchLookup{
		{NumTokens: 64, Hashes: blockHashes("aaaabbbbccccdddd")},
		{NumTokens: 32, Hashes: blockHashes("aaaaxxxx")},
		{NumTokens: 17, Hashes: blockHashes("aaaabbbb")}, // no multiple of a block
	}
	if err := c.Batch(ctx, lookups); err != nil {
		log.Print(err) // what was not answered counts as a miss
	}
	for _, l := range lookups {
		fmt.Println(l.Hit.Tokens, l.Err != nil)
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
	c, err := client.DialAsync(context.Background(), address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	hashes := blockHashes("aaaabbbbzzzz")
	for step := 0; ; step++ {
		hit, ready, err := c.Poll("request 1", 48, hashes)
		if !ready {
			time.Sleep(time.Millisecond) // the rest of the step
			continue
		}
		fmt.Println(hit.Tokens, err) // where err is not nil, hit is 0
		break
	}
	c.Discard("request 2") // aborted: whatever was asked for it is forgotten
	// Output: 32 <nil>
}

// serve starts a server that holds the blocks aaaa, bbbb, cccc and dddd.
func serve() (address string, stop func()) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(context.Background(), netproto.GroupRank{}, blockHashes("aaaabbbbccccdddd")); err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}, Loops: 1})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		log.Fatal(err)
	}
	return srv.Addrs()[0], func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
	}
}
