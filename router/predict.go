package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Predict says that an engine will soon have the blocks of a prompt, as a request with it was sent there. Of q only
// BlockSize, Hashes, Tokens and Keys count. A holder that has no source is made, and dropped when its predictions have
// expired. It fails as Query does, with ErrField, or with the errors of fleet.Holder.Predict and fleet.Fleet.Add.
func (s *Service) Predict(ctx context.Context, key ModelKey, id fleet.ID, q *Query) error {
	if err := checkID(id); err != nil {
		return err
	}
	sc, err := s.beginQuery(key, q.BlockSize)
	if err != nil {
		return err
	}
	defer sc.release()
	m, hashes := sc.model, q.Hashes
	if !q.byHashes() {
		if hashes, err = sc.hash(ctx, q, false); err != nil {
			return err
		}
	}
	if hashes.Len() == 0 {
		return nil
	}
	for attempt := 1; ; attempt++ {
		h, err := m.predicted(id, time.Now())
		if err != nil {
			return err
		}
		if err = h.Predict(ctx, hashes); !errors.Is(err, fleet.ErrClosed) || attempt == maxAttempts {
			return err
		}
	}
}

// maxAttempts bounds how often a prediction is made again because another goroutine has closed its holder.
const maxAttempts = 8

// predicted returns a holder for predictions, which is made if there is none.
func (m *model) predicted(id fleet.ID, now time.Time) (*fleet.Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropExpired(now)
	f := m.fleet.Load()
	h := f.Get(id)
	if _, ok := m.withoutSource[id]; h != nil && !ok {
		return h, nil
	}
	if h == nil {
		var err error
		if h, err = f.Add(id); err != nil {
			return nil, err
		}
	}
	m.withoutSource[id] = now.Add(m.cfg.Fleet.PredictTTL)
	return h, nil
}

// dropExpired drops the holders without a source whose predictions have expired. It looks through them a few times in
// the life of a prediction. m.mu is held.
func (m *model) dropExpired(now time.Time) {
	if len(m.withoutSource) > 0 && now.After(m.nextDrop) {
		m.nextDrop = now.Add(m.cfg.Fleet.PredictTTL / 4)
		m.dropPredicted(now)
	}
}

// dropPredicted drops the holders without a source whose predictions have expired at a time. m.mu is held.
func (m *model) dropPredicted(at time.Time) {
	for id, until := range m.withoutSource {
		if !at.Before(until) {
			m.dropHolder(id)
		}
	}
}

// names reports whether a source, or a prediction that may count, names an engine.
func (m *model) names(engine string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropExpired(time.Now())
	return m.fleet.Load().HasEngine(engine)
}

// dropHolder drops a holder. m.mu is held.
func (m *model) dropHolder(id fleet.ID) {
	delete(m.withoutSource, id)
	if h := m.fleet.Load().Get(id); h != nil {
		h.Close()
	}
}

// claim returns the holder of a source: one without a source, with what is predicted or what a dump had, or a new one.
func (m *model) claim(id fleet.ID, resumes bool) (*fleet.Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fleet.Load()
	h := f.Get(id)
	_, free := m.withoutSource[id]
	switch {
	case h != nil && (free || resumes):
		delete(m.withoutSource, id)
		return h, nil
	case resumes:
		return nil, fmt.Errorf("%w: its holder is gone", events.ErrCheckpoint)
	}
	h, err := f.Add(id)
	if errors.Is(err, fleet.ErrTooMany) { // those of sources go first
		m.dropPredicted(time.Now().Add(m.cfg.Fleet.PredictTTL))
		return f.Add(id)
	}
	return h, err
}
