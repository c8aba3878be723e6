package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of dumps.
var (
	ErrDump = errors.New("not a dump that can be loaded")
	// ErrNotEmpty refuses a dump for a service that has sources, or holders of another dump: it is loaded before they are added.
	ErrNotEmpty = errors.New("the service has sources, or has loaded a dump, already")
)

// pauseTimeout is how long a batch in progress is waited for at the beginning of a dump, while the other
// sources are paused. Batches take some milliseconds; a source with a longer one has no checkpoint in the dump.
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
	// Stale says that the holder counted for nothing, and that Ready did not wait for the source: its engine may be gone. Or
	// the source was busy, and begins anew.
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
// applied while that is copied; then they go on, and the copy is written: the caller may be slow. A source that is busy
// for over a second is in the dump, and begins anew where that is loaded. The copy takes about the memory of the fleets.
// Predictions are left out. One dump is written at a time, others wait.
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
	checkpoints := s.pauseAll(ctx)
	for key, m := range *s.models.Load() {
		info := modelInfo{ModelKey: key, BlockSize: m.cfg.Fleet.BlockSize, FirstBytes: m.cfg.Fleet.FirstBytes}
		d.models = append(d.models, dumpedModel{info, m.fleet.Load().Snapshot()})
	}
	unfollowed := s.dumpUnfollowed() // before those that are followed: one that begins to be is in either
	var busy []string
	for _, a := range s.sources() { // without those that have just gone
		checkpoint := checkpoints[a]
		if checkpoint == nil {
			busy = append(busy, a.Name)
		}
		d.sources = append(d.sources, s.dumpSource(a, checkpoint))
		delete(unfollowed, holderKey{a.ModelKey(), a.ID()})
	}
	d.sources = slices.AppendSeq(d.sources, maps.Values(unfollowed))
	for a := range checkpoints {
		a.follower.Unpause()
	}
	if len(busy) > 0 {
		s.log.Info("router: sources were busy while a dump was copied: who loads it follows them from their beginning",
			"number", len(busy), "first", busy[0])
	}
	return d, nil
}

// dumpSource returns what a dump has of a source. checkpoint is nil if the source is busy.
func (s *Service) dumpSource(a *activeSource, checkpoint *events.Checkpoint) *dumpedSource {
	info := sourceInfo{Source: a.Source, Registered: a.registered}
	if checkpoint == nil {
		return newSource(info)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info.Stale = a.holder.IsStale() && !a.catchesUp
	if state, _ := a.hashes.result(); state == HashesAgree {
		info.Agrees = a.model.cfg.Hash
	}
	return &dumpedSource{info, checkpoint}
}

// dumpUnfollowed returns what a dump has of registered sources that are not followed: who loads it may follow them.
func (s *Service) dumpUnfollowed() map[holderKey]*dumpedSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	sources := map[holderKey]*dumpedSource{}
	for key, info := range s.unfollowed {
		if info.Registered {
			sources[key] = newSource(info)
		}
	}
	return sources
}

// newSource returns a source of a dump that begins anew.
func newSource(info sourceInfo) *dumpedSource {
	info.Stale, info.Agrees = true, nil
	return &dumpedSource{info, events.NewCheckpoint(info.Name, info.ExactCopies)}
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
		return fmt.Errorf("writing a dump: %w", err)
	}
	return nil
}
