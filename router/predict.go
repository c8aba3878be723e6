package router

import (
	"errors"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/fleet"
)

// Predict says that an instance will soon have the blocks of a prompt, as a request with it was sent there. Of q only
// BlockSize, Hashes, Tokens and Keys count. A holder that no source fills is made, and dropped when its predictions
// have expired. It fails as Query does, or with the errors of fleet.Holder.Predict and fleet.Fleet.Add.
// The block size of the model must be known: only the configuration and sources decide it.
func (s *Service) Predict(key ModelKey, id fleet.ID, q *Query) error {
	if err := checkID(id); err != nil {
		return err
	}
	m, state, err := s.findState(key)
	if err == nil {
		err = state.checkBlockSize(q.BlockSize)
	}
	if err != nil {
		return err
	}
	sc := m.scratch.Get().(*scratch)
	defer m.release(sc)
	p := prompt{state: state, scratch: sc}
	hashes := q.Hashes
	if hashes.Len() == 0 {
		if hashes, err = p.hashAll(q); err != nil {
			return err
		}
	}
	if hashes.Len() == 0 {
		return nil
	}
	return m.predict(state, id, hashes)
}

// predict predicts blocks of a holder, which is made if there is none, and again if another goroutine closes it meanwhile.
func (m *model) predict(state *modelState, id fleet.ID, hashes coordinator.Hashes) error {
	for attempt := 0; ; attempt++ {
		h, err := m.predicted(state, id, time.Now())
		if err != nil {
			return err
		}
		if err = h.Predict(hashes); !errors.Is(err, fleet.ErrClosed) || attempt == maxPredictAttempts {
			return err
		}
	}
}

// maxPredictAttempts bounds how often a holder is made again. One that is closed so often is a bug.
const maxPredictAttempts = 8

// predicted returns a holder for predictions, which is made if there is none.
func (m *model) predicted(state *modelState, id fleet.ID, now time.Time) (*fleet.Holder, error) {
	m.sweep(state, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	state = m.state.Load() // a dump may just have replaced it
	until := now.Add(state.cfg.Fleet.PredictTTL)
	if h := state.fleet.Get(id); h != nil {
		if _, ok := m.unfed[id]; ok {
			m.unfed[id] = until
		}
		return h, nil
	}
	h, err := state.fleet.Add(id)
	if err == nil {
		m.unfed[id] = until
	}
	return h, err
}

// sweep drops the holders that no source fills and whose predictions have expired. It looks through them a few times
// in the life of a prediction.
func (m *model) sweep(state *modelState, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.unfed) == 0 || now.Before(m.nextSweep) {
		return
	}
	m.nextSweep = now.Add(state.cfg.Fleet.PredictTTL / 4)
	for id, until := range m.unfed {
		if now.Before(until) {
			continue
		}
		delete(m.unfed, id)
		if h := state.fleet.Get(id); h != nil {
			h.Close()
		}
	}
}
