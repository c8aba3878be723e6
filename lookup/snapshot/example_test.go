package snapshot_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// A program that embeds the server and keeps its index: the second time the blocks are there.
func Example() {
	folder, err := os.MkdirTemp("", "hitline")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "index.snapshot")
	for range 2 {
		if err := serve(path); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// loaded 0 entries, a hit of 0 tokens
	// loaded 2 entries, a hit of 32 tokens
}

// serve runs a server once.
func serve(path string) error {
	ctx := context.Background()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		return err
	}
	srv, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}})
	if err != nil {
		return err
	}
	srv.SetPreparing("loading the snapshot") // Ready says so until it is started
	saver, err := snapshot.New(srv, snapshot.Config{
		Path: path, Interval: 5 * time.Minute, MaxAge: 15 * time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := saver.Load(ctx); err != nil {
		return err
	}
	if err := srv.Start(ctx); err != nil {
		return err
	}
	saver.Start()

	hashes := coordinator.NewHashes([]byte(strings.Repeat("a", 32)+strings.Repeat("b", 32)), 32) // two blocks
	hit, err := service.LookupPrompt(ctx, 32, hashes)
	if err != nil {
		return err
	}
	fmt.Printf("loaded %d entries, a hit of %d tokens\n", saver.Status().LoadedEntries, hit.Tokens)
	if err := service.Store(ctx, coordinator.GroupRank{}, hashes); err != nil {
		return err
	}

	saver.Stop()
	drain, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = srv.Shutdown(drain)
	last, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	saver.SaveLast(last) // once nothing changes the index any more
	return err
}
