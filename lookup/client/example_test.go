package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// blockHashes returns the hashes of a prompt's blocks, here of 4 bytes each.
func blockHashes(prompt string) coordinator.Hashes { return coordinator.NewHashes([]byte(prompt), 4) }

// The server refuses the second lookup.
func ExampleDial() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address, client.WithTimeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	hit, err := c.Lookup(ctx, 48, blockHashes("aaaabbbbzzzz"))
	fmt.Println(hit.Tokens, err)
	_, err = c.Lookup(ctx, 17, blockHashes("aaaabbbb")) // not a multiple of a block
	fmt.Println(errors.Is(err, client.ErrRefused))
	// Output:
	// 32 <nil>
	// true
}

// What works on a lookup.Service works on a server: only the line differs that makes the service. A prompt may have any
// number of tokens, here four blocks of 16 and 6 more.
func ExampleClient_LookupPrompt() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	service, err := client.Dial(ctx, address) // or lookup.NewService(lookup.ServiceConfig{Pool: …})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	hashes := blockHashes("aaaabbbbccccdddd")
	if err := service.Store(ctx, coordinator.GroupRank{}, hashes); err != nil {
		log.Fatal(err)
	}
	hit, err := service.LookupPrompt(ctx, 70, hashes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hit.Tokens)
	// Output:
	// 64
}

// The lookups of one scheduling step are one batch.
func ExampleClient_Batch() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lookups := []client.BatchLookup{
		{NumTokens: 64, Hashes: blockHashes("aaaabbbbccccdddd")},
		{NumTokens: 32, Hashes: blockHashes("aaaaxxxx")},
		{NumTokens: 17, Hashes: blockHashes("aaaabbbb")}, // not a multiple of a block
	}
	if err := c.Batch(ctx, lookups); err != nil {
		log.Print(err) // lookups without an answer count as misses
	}
	for _, l := range lookups {
		fmt.Println(l.Hit.Tokens, l.Err != nil)
	}
	// Output:
	// 64 false
	// 16 false
	// 0 true
}

// A connector stores a prompt by its hashes. A second prompt that begins like it has a plan: the
// hit, and which chunks to load for it.
func ExampleClient_StorePrompt() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	stored, err := c.StorePrompt(ctx, api.PromptStore{NumTokens: 64}, blockHashes("eeeeffffgggghhhh"))
	fmt.Println(stored, err) // chunks of each group
	plan, err := c.Plan(ctx, 64, blockHashes("eeeeffffggggxxxx"))
	fmt.Println(plan.Hit.Tokens, err)
	for _, mask := range plan.Masks {
		for _, run := range mask.Runs {
			fmt.Println("group", mask.Group, "chunks", run.Start, "to", run.End-1)
		}
	}
	// Output:
	// [4] <nil>
	// 48 <nil>
	// group 0 chunks 0 to 2
}

// A scheduler polls once a scheduling step.
func ExampleAsyncClient() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lookups := c.Async()
	hashes := blockHashes("aaaabbbbzzzz")
	for step := 0; ; step++ {
		hit, ready, err := lookups.Poll("request 1", 48, hashes)
		if !ready {
			time.Sleep(time.Millisecond) // the rest of the step
			continue
		}
		if errors.Is(err, client.ErrPending) {
			log.Print(err) // too many lookups are pending: this one counts as a miss
		}
		fmt.Println(hit.Tokens, err) // if err is not nil, hit is 0
		break
	}
	lookups.Discard("request 2") // the request was aborted
	fmt.Println(c.Reset(ctx))
	// Output:
	// 32 <nil>
	// <nil>
}

// The server's certificate is of a CA that the client is given, and the client has a token that
// allows lookups alone.
func ExampleWithTLS() {
	ca := certtest.NewCA("example")
	rules, err := access.NewRules(access.Ping, []access.Credential{
		{Name: "router", Digest: access.DigestOf([]byte("nH1vWb0mT2c8yQd4")), Permissions: access.Lookup},
	})
	if err != nil {
		log.Fatal(err)
	}
	address, stop := serveOn(server.Listener{Address: "tls://127.0.0.1:0", Settings: server.Settings{
		Rules: rules, TLS: &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}},
	}})
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, address, client.WithTLS(&tls.Config{RootCAs: ca.Pool()}), client.WithToken("nH1vWb0mT2c8yQd4"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	hit, err := c.Lookup(ctx, 48, blockHashes("aaaabbbbzzzz"))
	fmt.Println(hit.Tokens, err)
	err = c.Reset(ctx)
	fmt.Println(errors.Is(err, client.ErrNotAllowed))
	_, err = client.Dial(ctx, address, client.WithTLS(&tls.Config{RootCAs: ca.Pool()}), client.WithToken("another token"))
	fmt.Println(errors.Is(err, client.ErrNotAuthenticated))
	// Output:
	// 32 <nil>
	// true
	// true
}

// serve starts a server on loopback, to which everything is allowed.
func serve() (address string, stop func()) {
	return serveOn(server.Listener{Address: "tcp://127.0.0.1:0"})
}

// serveOn starts a server that holds the blocks aaaa, bbbb, cccc and dddd.
func serveOn(listener server.Listener) (address string, stop func()) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Store(context.Background(), coordinator.GroupRank{}, blockHashes("aaaabbbbccccdddd")); err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(service, server.Config{Listeners: []server.Listener{listener}, Loops: 1})
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
