package compare

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

const (
	// turns is how many batches a round has of each rival, at most.
	turns = 8
	// maxPerRound bounds the requests of a rival and round.
	maxPerRound = 20_000
	// maxWarm bounds the time of the requests before the rounds.
	maxWarm = 200 * time.Millisecond
	// garbage is how many bytes client libraries may leave before they are collected.
	garbage = 256 << 20
)

// measurement is that of one number of hashes.
type measurement struct {
	o        Options
	load     *chainSet
	samplers []*sampler
	live     uint64 // bytes of the heap after the last collection
}

// open stores the chains with all rivals and connects to them.
func (m *measurement) open(ctx context.Context, rivals []*rival) error {
	for i, r := range rivals {
		m.step("store", i, len(rivals))
		c, err := r.open(ctx, m.load)
		if err != nil {
			return fmt.Errorf("%v, %d hashes: %w", r, m.load.hashes, err)
		}
		// They begin at different requests, so that none is still in a cache because
		// another rival has just been asked the same.
		m.samplers = append(m.samplers, &sampler{rival: r, client: c, load: m.load, next: i * m.load.len() / len(rivals)})
	}
	m.load.cut(m.o.HitShare, m.o.MissAt)
	for i, s := range m.samplers {
		m.step("prepare", i, len(rivals))
		if err := s.client.prepare(); err != nil {
			return fmt.Errorf("%v, %d hashes: %w", s.rival, m.load.hashes, err)
		}
	}
	return nil
}

func (m *measurement) close() {
	for _, s := range m.samplers {
		s.client.close()
	}
}

func (m *measurement) step(what string, done, total int) {
	m.o.OnStep(fmt.Sprintf("%d hashes: %s", m.load.hashes, what), done, total)
}

// run makes all rounds.
func (m *measurement) run(ctx context.Context) error {
	m.collect()
	for i, s := range m.samplers {
		m.step("warm up", i, len(m.samplers))
		if err := m.warm(ctx, s); err != nil {
			return err
		}
	}
	for round := range m.o.Rounds {
		m.step("rounds", round, m.o.Rounds)
		if err := m.measureRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// warm asks a rival without counting, for half the time of a round, and tells from
// it how many requests a round shall have. The first one is not representative.
func (m *measurement) warm(ctx context.Context, s *sampler) error {
	perRound := m.o.TimePerRival / time.Duration(m.o.Rounds)
	if _, err := s.ask(ctx, 1); err != nil {
		return err
	}
	spent, times := time.Duration(0), []time.Duration{}
	for len(times) < 2 || spent < min(perRound/2, maxWarm) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		answers, err := s.ask(ctx, 1)
		if err != nil {
			return err
		}
		spent += answers[0].took
		times = append(times, answers[0].took)
	}
	m.collectIfMuch()
	slices.Sort(times)
	median := max(measure.Percentile(times, 50), 1) // one slow request would dominate the mean
	s.perRound = int(min(max(perRound/median, 1), maxPerRound))
	return nil
}

// measureRound makes a round of batches, which go to the rivals in an order that is
// another one each turn: whoever follows another in the same server finds it warm.
func (m *measurement) measureRound(ctx context.Context, round int) error {
	for _, s := range m.samplers {
		s.left = s.perRound
	}
	random := m.load.random(streamTurns<<16 | uint64(round))
	for range turns {
		for _, i := range random.Perm(len(m.samplers)) {
			s := m.samplers[i]
			if err := s.askBatch(ctx, (s.perRound+turns-1)/turns); err != nil {
				return err
			}
			m.collectIfMuch()
		}
	}
	for _, s := range m.samplers {
		s.endRound()
	}
	return nil
}

// collectIfMuch collects the garbage once there is much of it.
func (m *measurement) collectIfMuch() {
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	if now.HeapAlloc > m.live+garbage {
		m.collect()
	}
}

func (m *measurement) collect() {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	m.live = now.HeapAlloc
}

// rows makes the report's rows: one way after the other.
func (m *measurement) rows() []Row {
	var rows []Row
	for _, way := range Ways() {
		hitline, zmtp := m.find(Hitline, way), m.find(HitlineZMTP, way)
		for _, s := range m.samplers {
			if s.rival.way == way {
				rows = append(rows, s.row(hitline, zmtp))
			}
		}
	}
	return rows
}

// find returns the sampler of a rival; nil if it is not measured.
func (m *measurement) find(name, way string) *sampler {
	i := slices.IndexFunc(m.samplers, func(s *sampler) bool { return s.rival.name == name && s.rival.way == way })
	if i < 0 {
		return nil
	}
	return m.samplers[i]
}
