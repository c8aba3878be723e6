package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// A service is served on a free port, and a client connects to it.
func Example() {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	limits := server.DefaultLimits()
	limits.IdleTimeout = time.Hour
	srv, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Limits: limits})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		log.Fatal(err)
	}

	c, err := client.Dial(ctx, srv.Addrs()[0])
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes([]byte("aaaabbbb"), 4)); err != nil { // two hashes of 4 bytes
		log.Fatal(err)
	}
	hit, err := c.Lookup(ctx, 64, coordinator.NewHashes([]byte("aaaabbbbddddeeee"), 4))
	fmt.Println(hit.Tokens, err)
	_ = c.Close()

	fmt.Println(srv.Shutdown(ctx)) // drains, then closes
	// Output:
	// 32 <nil>
	// <nil>
}

// The errors of a server's methods are matched with errors.Is.
func ExampleServer_Err() {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = server.New(service, server.Config{Listeners: []server.Listener{{Address: "/run/hitline.sock"}}}) // no scheme
	fmt.Println(errors.Is(err, api.ErrConfig))

	ctx := context.Background()
	srv, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "ipc:///no/such/directory/socket"}}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(srv.Ready(), server.ErrNotReady))
	fmt.Println(srv.Start(ctx) != nil)
	<-srv.Done()
	fmt.Println(errors.Is(srv.Err(), server.ErrStopped))

	srv, err = server.New(service, server.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_ = srv.Shutdown(ctx)
	fmt.Println(errors.Is(srv.Start(ctx), server.ErrServerClosed))
	// Output:
	// true
	// true
	// true
	// true
	// true
}
