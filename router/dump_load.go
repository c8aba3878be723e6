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
	// maxDumpCheckpoints bounds their checkpoints together, in bytes: usually they have some 5 KiB each.
	maxDumpCheckpoints = 1 << 30
)

// holderKey names a holder of a service.
type holderKey struct {
	ModelKey
	fleet.ID
}

// loadedDump is what was read of a dump.
type loadedDump struct {
	models      map[ModelKey]*loadedModel
	sources     map[holderKey]*loadedSource
	checkpoints int64 // bytes
}

// loadedModel is a model of a dump, for model, which s may not have yet.
type loadedModel struct {
	model *model
	state *modelState
}

// loadedSource is a source of a dump that was loaded, and where it is.
type loadedSource struct {
	info       sourceInfo
	checkpoint *events.Checkpoint
}

// LoadDump reads a dump that WriteDump has written, in a service without sources. What the sources of the dump filled
// is there then and stale. Add and Register of a source for one of these holders goes on where the source was.
// DropLoaded ends this. A model of the dump is left out, with a line in the log, if it does not suit this service: its
// block size or groups differ, or it does not fit into the limits. LoadDump fails with ErrDump or ErrNotEmpty, and
// then has loaded nothing.
func (s *Service) LoadDump(r io.Reader) error {
	d := &loadedDump{models: map[ModelKey]*loadedModel{}, sources: map[holderKey]*loadedSource{}}
	if err := s.readDump(r, d); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.install(d)
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
	if r.JSON(&info); info.key().check() != nil || d.models[info.key()] != nil {
		r.Fail("model %.40q of tenant %.40q is wrong, or there twice", info.Name, info.Tenant)
		return
	}
	m, err := s.newLoadedModel(&info, len(d.models))
	if err == nil {
		err = m.state.fleet.Load(r)
	}
	switch {
	case r.Err() != nil:
	case err != nil:
		s.log.Warn("router: a model of the dump is left out", "model", info.Name, "tenant", info.Tenant, "reason", err)
		r.SkipSection()
	default:
		d.models[info.key()] = m
	}
}

// newLoadedModel returns an empty model for one of a dump, of which others were read before.
func (s *Service) newLoadedModel(info *modelInfo, others int) (*loadedModel, error) {
	m := (*s.models.Load())[info.key()]
	if m == nil {
		if others >= s.cfg.MaxModels {
			return nil, fmt.Errorf("%w models: there are %d", ErrTooMany, others)
		}
		var err error
		if m, err = newModel(s.sourcedModel(info.key(), info.BlockSize, info.FirstBytes), false); err != nil {
			return nil, err
		}
	}
	if state := m.state.Load(); state != nil {
		if err := state.checkBlockSize(info.BlockSize); err != nil {
			return nil, err
		}
	}
	if info.FirstBytes != m.cfg.Fleet.FirstBytes {
		return nil, fmt.Errorf("%w: model %q", ErrOtherType, info.Name)
	}
	state, err := m.newState(info.BlockSize)
	return &loadedModel{m, state}, err
}

// readSource reads where a source is. It skips one of a model that was left out.
func (d *loadedDump) readSource(r *parts.Reader) {
	var info sourceInfo
	r.JSON(&info)
	key := holderKey{info.ModelKey(), info.ID()}
	if err := info.Validate(); err != nil {
		r.Fail("source %.40q: %v", info.Name, err)
		return
	}
	if d.sources[key] != nil {
		r.Fail("source %.40q fills the holder of another one", info.Name)
		return
	}
	if d.models[key.ModelKey] == nil {
		r.SkipSection()
		return
	}
	begin := r.Offset()
	d.sources[key] = &loadedSource{info, events.ReadCheckpoint(r)}
	if d.checkpoints += r.Offset() - begin; d.checkpoints > maxDumpCheckpoints {
		r.Fail("its checkpoints have over %d bytes", maxDumpCheckpoints)
	}
}

// install makes d what s has. s.changing is held.
func (s *Service) install(d *loadedDump) error {
	if len(s.active) > 0 {
		return ErrNotEmpty
	}
	models := maps.Clone(*s.models.Load())
	for key, l := range d.models {
		if models[key] == nil && len(models) < s.cfg.MaxModels {
			models[key] = l.model
		}
		if m := models[key]; m == nil || !m.replaceState(l.state) {
			s.log.Warn("router: a model of the dump is left out, as others came meanwhile", "model", key.Name, "tenant", key.Tenant)
			delete(d.models, key)
		}
	}
	s.models.Store(&models)
	s.loaded = map[holderKey]*loadedSource{}
	for key, l := range d.sources {
		if m := d.models[key.ModelKey]; m != nil && m.state.fleet.Get(key.ID) != nil {
			s.loaded[key] = l
		}
	}
	for key, m := range d.models { // a source that was left out of the dump has no checkpoint
		for _, h := range m.state.fleet.Holders() {
			if s.loaded[holderKey{key, h.ID}] == nil {
				m.state.fleet.Get(h.ID).Close()
			}
		}
	}
	return nil
}

// replaceState makes state that of m, with its holders. Predictions of before are lost. It does nothing and returns
// false if the block size differs.
func (m *model) replaceState(state *modelState) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.state.Load(); old != nil && old.checkBlockSize(state.cfg.Fleet.BlockSize) != nil {
		return false
	}
	clear(m.withoutSource)
	m.state.Store(state)
	return true
}

// takeLoaded takes the source of a dump that filled the holder of src, nil if there is none.
func (s *Service) takeLoaded(src *Source) *loadedSource {
	key := holderKey{src.ModelKey(), src.ID()}
	l := s.loaded[key]
	delete(s.loaded, key)
	return l
}

// returnLoaded undoes takeLoaded for a source that could not be followed, unless its holder is closed.
func (s *Service) returnLoaded(l *loadedSource) {
	key := holderKey{l.info.ModelKey(), l.info.ID()}
	if m := (*s.models.Load())[key.ModelKey]; m != nil && m.state.Load().fleet.Get(key.ID) != nil {
		s.loaded[key] = l
	}
}

// hasLoaded reports whether a model has holders of a dump that no source fills yet. s.changing is held.
func (s *Service) hasLoaded(model ModelKey) bool {
	for key := range s.loaded {
		if key.ModelKey == model {
			return true
		}
	}
	return false
}

// DropLoaded drops the holders of a dump that no source has gone on to fill, and models that have none.
func (s *Service) DropLoaded() {
	s.changing.Lock()
	defer s.changing.Unlock()
	for key := range s.loaded {
		s.dropLoaded(key)
	}
	for _, m := range *s.models.Load() {
		s.dropUnused(m)
	}
}

// dropLoaded drops a holder of a dump. s.changing is held.
func (s *Service) dropLoaded(key holderKey) {
	delete(s.loaded, key)
	if m := (*s.models.Load())[key.ModelKey]; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dropHolder(key.ID)
	}
}
