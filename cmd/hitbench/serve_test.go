package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// serveAsHitline is what this test binary does as "hitline serve": a server whose
// hashes cover 16 tokens, whatever it is told.
func serveAsHitline() {
	pool := coordinator.Pool{HashBlockSize: 16}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	if err != nil {
		panic(err)
	}
	srv, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}})
	if err == nil {
		err = srv.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", srv.Addrs()[0])
	<-srv.Done()
}
