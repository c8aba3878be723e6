package main

import (
	"errors"
	"os"
	"time"

	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// lastSnapshotTimeout bounds how long the end of serve waits for the last snapshot. It is enough for tens of
// GiB on a slow disk.
const lastSnapshotTimeout = 2 * time.Minute

// newSaver returns the Saver of a server, nil if no snapshot is configured.
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
