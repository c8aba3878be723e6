package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// lastSnapshotTimeout bounds how long the end of serve waits for the last snapshot. It is enough for tens of
// GiB on a slow disk.
const lastSnapshotTimeout = 2 * time.Minute

// newSaver returns what keeps the memory indexes of a server, nil if nothing does.
func (r *running) newSaver(srv *server.Server) (*snapshot.Saver, error) {
	cfg := r.cfg.Backend.Memory.Snapshot
	if r.store != nil || cfg.Path == "" {
		return nil, nil
	}
	srv.SetPreparing("loading the snapshot")
	return snapshot.New(srv, snapshot.Config{
		Path: cfg.Path, Interval: time.Duration(cfg.Interval), MaxAge: time.Duration(cfg.MaxAge), Version: buildVersion(), Logger: r.logger,
	})
}

// checkSnapshot returns why no snapshot can be written, nil if one can or none is configured.
func (r *running) checkSnapshot() error {
	path := r.cfg.Backend.Memory.Snapshot.Path
	if r.store != nil || path == "" {
		return nil
	}
	err := snapshot.CheckPath(path)
	if err == nil && isSameFile(path, r.source.File) {
		err = errors.New("it would replace this file")
	}
	if err != nil {
		return r.cfg.Blame("backend.memory.snapshot.path", err)
	}
	return nil
}

// isSameFile tells whether two paths lead to one file. One that is missing or empty leads to none.
func isSameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// loadSnapshot loads the snapshot. It returns the signal that has interrupted it, if one has, and an error if
// the end of ctx has.
func loadSnapshot(ctx context.Context, saver *snapshot.Saver, signals <-chan os.Signal) (os.Signal, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	go func() { loaded <- saver.Load(ctx) }()
	select {
	case err := <-loaded:
		return nil, err
	case s := <-signals:
		cancel()
		<-loaded
		return s, nil
	}
}

// keptServer is a server that writes a last snapshot when it is shut down.
type keptServer struct {
	*server.Server
	saver *snapshot.Saver
}

// Shutdown shuts the server down until ctx ends, and then writes the snapshot, which takes lastSnapshotTimeout
// at most.
func (k keptServer) Shutdown(ctx context.Context) error {
	k.saver.Stop()
	err := k.Server.Shutdown(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSnapshotTimeout)
	defer cancel()
	k.saver.Last(ctx)
	return err
}
