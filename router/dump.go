package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of dumps.
var (
	ErrDump = errors.New("router: not a dump that can be loaded")
	// ErrNotEmpty refuses a dump for a service that has sources, or holders of another dump: it is loaded before they are added.
	ErrNotEmpty = errors.New("router: the service has sources, or has loaded a dump, already")
)

// pauseTimeout is how long a batch in progress is waited for at the beginning of a dump, while the other
// sources are paused. Batches take some milliseconds; a source with a longer one is left out.
const pauseTimeout = time.Second

// dumpInfo tells of a dump.
type dumpInfo struct {
	Models  uint `json:"models"`
	Sources uint `json:"sources"`
}

// modelInfo tells of a model.
type modelInfo struct {
	ModelKey
	BlockSize  int  `json:"block_size"`
	FirstBytes bool `json:"first_bytes"`
}

func (i *modelInfo) key() ModelKey { return i.withDefaults() }

// sourceInfo tells of a source.
type sourceInfo struct {
	Source
	Registered bool `json:"registered,omitempty"`
	// Stale says that the holder counted for nothing, and that Ready did not wait for the source: its engine may be gone.
	Stale bool `json:"stale,omitempty"`
	// Agrees is the model's Hash if the source's hashes agree with it.
	Agrees *Hashing `json:"agrees,omitempty"`
}

// dump is a service at one moment.
type dump struct {
	models  []dumpedModel
	sources []*dumpedSource
}

type dumpedModel struct {
	info     modelInfo
	snapshot *fleet.Snapshot
}

// dumpedSource is a source, and where it is.
type dumpedSource struct {
	info       sourceInfo
	checkpoint *events.Checkpoint
}

// WriteDump writes what the holders hold and where their sources are, all at one moment, for LoadDump. No event is
// applied while that is copied; then they go on, and the copy is written: the caller may be slow. The copy takes
// about the memory of the fleets. Predictions are left out. One dump is written at a time, others wait.
// WriteDump fails with ErrLoading, or as w and ctx do.
func (s *Service) WriteDump(ctx context.Context, w io.Writer) error {
	resume := cpushare.Pause(ctx)
	select {
	case s.dumping <- struct{}{}:
		defer func() { <-s.dumping }()
	case <-ctx.Done():
	}
	if resume(); ctx.Err() != nil {
		return ctx.Err()
	}
	d, err := s.copyDump(ctx)
	if err != nil {
		return err
	}
	return d.write(w)
}

// copyDump copies what a dump has.
func (s *Service) copyDump(ctx context.Context) (*dump, error) {
	if s.loading.Load() {
		return nil, ErrLoading
	}
	defer cpushare.Pause(ctx)() // it waits for the sources, and these then for it
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	d := &dump{}
	paused := s.pauseAll(ctx)
	for key, m := range *s.models.Load() {
		info := modelInfo{ModelKey: key, BlockSize: m.cfg.Fleet.BlockSize, FirstBytes: m.cfg.Fleet.FirstBytes}
		d.models = append(d.models, dumpedModel{info, m.fleet.Load().Snapshot()})
	}
	s.mu.Lock() // not while a copy waits for who makes room: that may need the processor of who waits for s.mu
	defer s.mu.Unlock()
	for _, p := range paused {
		if s.active[p.Name] == p.activeSource { // otherwise it has just gone
			info := sourceInfo{Source: p.Source, Registered: p.registered, Stale: p.holder.IsStale() && !p.catchesUp}
			if state, _ := p.hashes.result(); state == HashesAgree {
				info.Agrees = p.model.cfg.Hash
			}
			d.sources = append(d.sources, &dumpedSource{info, p.checkpoint})
		}
		p.follower.Unpause()
	}
	return d, nil
}

// The header of a dump. Its sections are: dumpInfo, then of each model modelInfo and its fleet.Snapshot, then of each source
// sourceInfo and its events.Checkpoint.
const (
	dumpMagic  = "HITLDUMP"
	dumpFormat = 4
)

// write writes the dump.
func (d *dump) write(out io.Writer) error {
	w := parts.NewWriter(out, dumpMagic, dumpFormat)
	w.JSON(dumpInfo{Models: uint(len(d.models)), Sources: uint(len(d.sources))})
	for i := range d.models {
		m := &d.models[i]
		w.Section()
		w.JSON(m.info)
		m.snapshot.Write(w)
		m.snapshot = nil // its memory is free from here on
	}
	for _, src := range d.sources {
		w.Section()
		w.JSON(src.info)
		src.checkpoint.Write(w)
	}
	if err := w.End(); err != nil {
		return fmt.Errorf("router: writing a dump: %w", err)
	}
	return nil
}
