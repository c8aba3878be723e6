//go:build linux

package compare

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

const (
	// batch is how many requests a rival gets at its turn, at most.
	batch = 64
	// turns is how many batches a round has of each rival, at least.
	turns = 8
	// maxByTime bounds the requests of a rival in a round.
	maxByTime = 20_000
	// maxWarm bounds the time of the requests before the rounds.
	maxWarm = 200 * time.Millisecond
	// pipelinedBatch is how often the requests under way change in a batch, at least: it begins
	// and ends with fewer.
	pipelinedBatch = 16
)

// measurement is that of one number of hashes.
type measurement struct {
	o        Options
	load     *lookups
	samplers []*sampler
}

// open stores the chains with all rivals and connects to them.
func (m *measurement) open(ctx context.Context, rivals []*rival) error {
	for i, r := range rivals {
		m.step("store", i, len(rivals))
		if r.fill == nil {
			continue
		}
		if err := r.fill(ctx); err != nil {
			return fmt.Errorf("%s, %d hashes: storing: %w", r.name, m.load.Hashes(), err)
		}
	}
	m.load.Cut(m.o.HitShare)
	for i, r := range rivals {
		m.step("connect", i, len(rivals))
		c, err := r.connect(ctx)
		if err != nil {
			return fmt.Errorf("%s, %d hashes: %w", r.name, m.load.Hashes(), err)
		}
		// They begin at different requests, so that none is still in a cache because
		// another rival has just been asked the same.
		m.samplers = append(m.samplers, &sampler{rival: r, client: c, load: m.load, next: i * m.load.Len() / len(rivals)})
	}
	return nil
}

func (m *measurement) close() {
	for _, s := range m.samplers {
		s.client.Close()
	}
}

func (m *measurement) step(what string, done, total int) {
	m.o.OnStep(fmt.Sprintf("%d hashes: %s", m.load.Hashes(), what), done, total)
}

// run makes all rounds.
func (m *measurement) run(ctx context.Context) error {
	runtime.GC()
	for i, s := range m.samplers {
		m.step("warm up", i, len(m.samplers))
		if err := m.warm(ctx, s); err != nil {
			return err
		}
	}
	err := m.rounds(ctx, "rounds", m.samplers, func(s *sampler, n int) error { return s.askBatch(ctx, n) }, (*sampler).endRound)
	if err == nil && m.o.Pipeline > 0 {
		several := slices.DeleteFunc(slices.Clone(m.samplers), func(s *sampler) bool { return s.client.depth < m.o.Pipeline })
		err = m.rounds(ctx, "pipelined", several, func(s *sampler, n int) error {
			return s.askPipelined(max(n, pipelinedBatch*m.o.Pipeline), m.o.Pipeline)
		}, (*sampler).endPipelined)
	}
	return err
}

// warm asks a rival without counting, for half the time of a round, and tells from
// it how many requests a round shall have. The first one is not representative.
func (m *measurement) warm(ctx context.Context, s *sampler) error {
	perRound := m.o.TimePerRival / time.Duration(m.o.Rounds)
	spent, times := time.Duration(0), []time.Duration{}
	if err := s.ask(ctx, 1, func(time.Duration) {}); err != nil {
		return err
	}
	for len(times) < 2 || spent < min(perRound/2, maxWarm) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.ask(ctx, 1, func(took time.Duration) {
			spent += took
			times = append(times, took)
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(times)
	median := max(measure.Percentile(times, 50), 1) // one slow request would dominate the mean
	s.perRound = cmp.Or(m.o.requests, int(min(max(perRound/median, 1), maxByTime)))
	return nil
}

// rounds makes rounds of batches, which go to the rivals in an order that is another one each
// turn: whoever follows another in the same server finds it warm.
func (m *measurement) rounds(ctx context.Context, what string, samplers []*sampler, ask func(s *sampler, n int) error, end func(*sampler)) error {
	random := m.load.Rand(workload.ForOthers)
	for round := range m.o.Rounds {
		m.step(what, round, m.o.Rounds)
		for _, s := range samplers {
			s.left = s.perRound
		}
		for left := true; left; {
			left = false
			for _, i := range random.Perm(len(samplers)) {
				s := samplers[i]
				if s.left == 0 {
					continue
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := ask(s, min(batch, (s.perRound+turns-1)/turns)); err != nil {
					return err
				}
				left = left || s.left > 0
			}
		}
		for _, s := range samplers {
			end(s)
		}
	}
	return nil
}

// rows makes the report's rows.
func (m *measurement) rows() []Row {
	rows := make([]Row, len(m.samplers))
	for i, s := range m.samplers {
		rows[i] = s.row(m.find(Hitline), m.find(RawSocket))
	}
	return rows
}

// find returns the sampler of a rival, or nil.
func (m *measurement) find(name string) *sampler {
	for _, s := range m.samplers {
		if s.rival.name == name {
			return s
		}
	}
	return nil
}
