package router

import (
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
	// dumpSourceBytes is what the texts of a source take at most.
	dumpSourceBytes = 3 << 10
)

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

// LoadDump reads a dump that WriteDump has written, in a service without sources or holders of another dump. The holders of
// the dump are there then, and stale. Add and Register of a source for one of these holders goes on where the source was.
// DropUnclaimed ends this. A model of the dump is left out, with a line in the log, if it does not suit this service: its
// block size or groups differ, or it does not fit into the limits. LoadDump fails with ErrDump or ErrNotEmpty, and then
// has loaded nothing.
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
			if d.sources[holderKey{key, h.ID}] == nil { // its source was left out of the dump
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

// readSource reads where a source is. It skips one whose holder is not loaded.
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
	if f := d.fleets[key.ModelKey]; f == nil || f.Get(key.ID) == nil {
		r.SkipSection()
		return
	}
	checkpoint := events.ReadCheckpoint(r)
	if n := dumpSourceBytes + checkpoint.Bytes(); d.sourceBytes+n <= maxDumpSourceBytes { // otherwise it begins anew
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

// DropUnclaimed drops the holders of a dump that have no source yet, and models without sources.
func (s *Service) DropUnclaimed() {
	s.changing.Lock()
	defer s.changing.Unlock()
	models := *s.models.Load()
	for key := range s.unclaimed {
		m := models[key.ModelKey]
		m.locked(func() { m.dropHolder(key.ID) })
	}
	clear(s.unclaimed)
	for _, m := range models {
		s.dropUnused(m)
	}
}
