package router

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

const (
	// maxDumpModels bounds the models of a dump: each that does not suit is a line in the log.
	maxDumpModels = 1024
	// maxDumpSources bounds the sources of a dump: as many as 16 models have holders by default.
	maxDumpSources = 1 << 16
	// maxDumpSourceBytes bounds the memory of sources and their checkpoints together. Usually a source takes 8 KiB, the
	// copies of all 64 MiB at most.
	maxDumpSourceBytes = 128 << 20
	// dumpSourceBytes is what a source takes besides its texts.
	dumpSourceBytes = 512
)

// bytes returns the memory that the source takes, about.
func (i *sourceInfo) bytes() (n int64) {
	for _, text := range []string{i.Name, i.Endpoint, i.Replay, i.Topic, i.Model, i.Tenant, i.Engine, i.KVEndpoint} {
		n += int64(len(text))
	}
	return n + dumpSourceBytes
}

// errUnclaimed is why a source of a dump is not followed that nobody has added.
var errUnclaimed = errors.New("it is not one of this service")

// holderKey names a holder of a service.
type holderKey struct {
	ModelKey
	fleet.ID
}

// loadedDump is what was read of a dump.
type loadedDump struct {
	models      map[ModelKey]*model       // those of the service, and those that the dump adds
	fleets      map[ModelKey]*fleet.Fleet // of the models of the dump
	sources     map[holderKey]*dumpedSource
	sourceBytes int64 // of sources
}

// LoadDump reads a dump that WriteDump has written, in a service without sources or holders of another dump. The holders
// of the dump are there then, and stale. Add and Register of a source for one of these holders goes on where the source
// was, or begins anew if it was busy. DropUnclaimed ends this. A model of the dump is left out, with a line in the log, if
// it does not suit this service: its block size or groups differ, or it does not fit into the limits. LoadDump fails with
// ErrDump or ErrNotEmpty, and then has loaded nothing.
func (s *Service) LoadDump(r io.Reader) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if len(s.active)+len(s.unclaimed) > 0 {
		return ErrNotEmpty
	}
	d := &loadedDump{models: maps.Clone(*s.models.Load()), fleets: map[ModelKey]*fleet.Fleet{}, sources: map[holderKey]*dumpedSource{}}
	if err := s.readDump(r, d); err != nil {
		return err
	}
	for key, f := range d.fleets {
		for _, h := range f.Holders() {
			if d.sources[holderKey{key, h.ID}] == nil { // it had none
				f.Get(h.ID).Close()
			}
		}
		d.models[key].replaceFleet(f)
	}
	s.models.Store(&d.models)
	s.unclaimed = d.sources
	return nil
}

// readDump reads a dump to its end. It changes nothing of s.
func (s *Service) readDump(in io.Reader, d *loadedDump) error {
	r := parts.NewReader(in, dumpMagic, dumpFormat)
	var info dumpInfo
	if r.JSON(&info); info.Models > maxDumpModels || info.Sources > maxDumpSources {
		r.Fail("%d models and %d sources; at most %d and %d are possible", info.Models, info.Sources, maxDumpModels, maxDumpSources)
	}
	for n := uint(0); n < info.Models+info.Sources && r.Err() == nil; n++ {
		switch {
		case !r.NextSection():
			r.Fail("models or sources are missing")
		case n < info.Models:
			s.readModel(r, d)
		default:
			d.readSource(r)
		}
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: %w", ErrDump, err)
	}
	return nil
}

// readModel reads the holders of a model. It skips them if they do not suit s.
func (s *Service) readModel(r *parts.Reader, d *loadedDump) {
	var info modelInfo
	r.JSON(&info)
	key := info.key()
	if key.check("name") != nil || d.fleets[key] != nil {
		r.Fail("model %.40q of tenant %.40q is wrong, or there twice", info.Name, info.Tenant)
		return
	}
	m, f, err := s.newFleet(&info, d)
	if err == nil {
		err = f.Load(r)
	}
	switch {
	case r.Err() != nil:
	case err != nil:
		s.log.Warn("router: a model of the dump is left out", "model", info.Name, "tenant", info.Tenant, "reason", err)
		r.SkipSection()
	default:
		d.models[key], d.fleets[key] = m, f
	}
}

// newFleet returns the model for one of a dump, and a fleet for its holders.
func (s *Service) newFleet(info *modelInfo, d *loadedDump) (*model, *fleet.Fleet, error) {
	m := d.models[info.key()]
	if m == nil {
		if len(d.models) >= s.cfg.MaxModels {
			return nil, nil, fmt.Errorf("%w models: there are %d", ErrTooMany, len(d.models))
		}
		var err error
		if m, err = newModel(s.sourcedModel(info), false); err != nil {
			return nil, nil, err
		}
	}
	if err := m.checkBlockSize(info.BlockSize); err != nil {
		return nil, nil, err
	}
	if info.FirstBytes != m.cfg.Fleet.FirstBytes {
		return nil, nil, fmt.Errorf("%w: model %q", ErrOtherType, info.Name)
	}
	f, err := m.newFleet()
	return m, f, err
}

// replaceFleet gives m the holders of f. Predictions of before are lost.
func (m *model) replaceFleet(f *fleet.Fleet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.withoutSource)
	m.fleet.Store(f)
}

// readSource reads where a source is. One whose holder is not loaded begins anew, as does one whose checkpoint is too large.
func (d *loadedDump) readSource(r *parts.Reader) {
	var info sourceInfo
	r.JSON(&info)
	key := holderKey{info.ModelKey(), info.ID()}
	if err := info.Validate(); err != nil {
		r.Fail("source %.40q: %v", info.Name, err)
		return
	}
	if d.sources[key] != nil {
		r.Fail("source %.40q has the holder of another one", info.Name)
		return
	}
	d.sources[key] = newSource(info)
	if d.sourceBytes += info.bytes(); d.sourceBytes > maxDumpSourceBytes {
		r.Fail("sources of over %d bytes", maxDumpSourceBytes)
		return
	}
	if f := d.fleets[key.ModelKey]; f == nil || f.Get(key.ID) == nil {
		r.SkipSection()
		return
	}
	checkpoint := events.ReadCheckpoint(r)
	if n := checkpoint.Bytes(); d.sourceBytes+n <= maxDumpSourceBytes {
		d.sourceBytes += n
		d.sources[key] = &dumpedSource{info, checkpoint}
	}
}

// hasUnclaimed reports whether a model has holders of a dump that have no source yet. s.changing is held.
func (s *Service) hasUnclaimed(model ModelKey) bool {
	for key := range s.unclaimed {
		if key.ModelKey == model {
			return true
		}
	}
	return false
}

// DropUnclaimed drops the holders of a dump that have no source yet, and models without sources. Such a source of the dump is
// in the log, and unsure in answers until it is registered or unregistered, or another source is followed at its address.
func (s *Service) DropUnclaimed() { s.dropUnclaimed(nil) }

// dropUnclaimed is DropUnclaimed. reasons says why sources are not followed.
func (s *Service) dropUnclaimed(reasons map[holderKey]error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	models := *s.models.Load()
	s.mu.Lock()
	for key, src := range s.unclaimed {
		s.unfollowed[key] = src.info
	}
	s.mu.Unlock()
	for key, src := range s.unclaimed {
		if m := models[key.ModelKey]; m != nil {
			m.locked(func() { m.dropHolder(key.ID) })
			m.changed()
		}
		s.log.Warn("router: a source of the dump is not followed, so answers name it as unsure", "source", src.info.Name,
			"model", key.Name, "tenant", key.Tenant, "engine", key.Engine, "rank", key.Rank,
			"reason", cmp.Or(reasons[key], errUnclaimed))
	}
	clear(s.unclaimed)
	for _, m := range models {
		s.dropUnused(m)
	}
}

// dropUnfollowed ends that sources of a dump are unsure, and reports whether there was one. s.changing is held.
func (s *Service) dropUnfollowed(ends func(*Source) bool) (dropped bool) {
	models := *s.models.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, info := range s.unfollowed {
		if !ends(&info.Source) {
			continue
		}
		delete(s.unfollowed, key)
		dropped = true
		if m := models[key.ModelKey]; m != nil {
			m.changed()
		}
	}
	return dropped
}

// unfollowedOf returns the holders of a model whose sources a dump had, and that are not followed here.
func (s *Service) unfollowedOf(key ModelKey) (list []fleet.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.unfollowed {
		if of.ModelKey == key {
			list = append(list, of.ID)
		}
	}
	return list
}
