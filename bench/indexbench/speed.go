package indexbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/index"
)

// missRequests is how many requests a pass of misses makes.
const missRequests = 1 << 16

// singleEntries is how many entries are stored one by one at most: 0.1 GB of them.
const singleEntries = 1 << 20

// Progress, where an option, is told how many steps of a phase are done; never
// while a clock runs.
type Progress func(phase string, done, total int)

// SpeedOptions says what to measure.
type SpeedOptions struct {
	Entries int    // hashes in the index
	HashLen int    // bytes a hash
	Passes  int    // the median of so many is reported
	Seed    uint64 // decides the hashes and the order of the requests; not 0

	Progress Progress // may be nil

	open   opener // newPool, but for tests
	misses int    // missRequests, but for tests
}

// opener makes an index; see newPool.
type opener func(maxEntries, want int64, hashLen int) (subject, error)

// setDefaults fills in what options leave open.
func setDefaults(p *Progress, o *opener) {
	if *p == nil {
		*p = func(string, int, int) {}
	}
	if *o == nil {
		*o = newPool
	}
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o SpeedOptions) Validate() error {
	if err := checkKeys(o.Entries, 1, o.HashLen, o.Seed); err != nil {
		return err
	}
	return checkPasses(o.Passes)
}

func checkKeys(entries, least, hashLen int, seed uint64) error {
	switch {
	case entries < least || entries > maxEntries:
		return fmt.Errorf("%w: %d entries; give %d to %d", measure.ErrOptions, entries, least, maxEntries)
	case hashLen < minHashLen || hashLen > maxHashLen:
		return fmt.Errorf("%w: hashes of %d bytes; give %d to %d", measure.ErrOptions, hashLen, minHashLen, maxHashLen)
	case seed == 0:
		return fmt.Errorf("%w: a seed of 0; give another number", measure.ErrOptions)
	}
	return nil
}

func checkPasses(passes int) error {
	if passes < 1 || passes > 1000 {
		return fmt.Errorf("%w: %d passes; give 1 to 1000", measure.ErrOptions, passes)
	}
	return nil
}

// speed is a measurement under way.
type speed struct {
	SpeedOptions
	ctx                                            context.Context
	setup                                          measure.Setup
	seed                                           seed
	x                                              subject
	r                                              reader
	rival                                          goMap // nil: none for this length
	keys, mixed                                    []byte
	chain, random, miss, rivalChain, rivalRandom   passes
	single                                         passes  // stores a second
	singleBytes                                    float64 // per entry, as the index says
	bytes, peak, mapped, rivalBytes, bytesAsStated float64 // per entry
}

// Speed measures lookups and memory. Errors wrap [measure.ErrOptions] or [ErrWrong],
// or are the cause of ctx being done.
func Speed(ctx context.Context, o SpeedOptions) (SpeedReport, error) {
	if err := o.Validate(); err != nil {
		return SpeedReport{}, err
	}
	setDefaults(&o.Progress, &o.open)
	if o.misses == 0 {
		o.misses = missRequests
	}
	s := &speed{SpeedOptions: o, ctx: ctx, setup: measure.NewSetup(o.Seed), seed: seed(o.Seed)}
	for _, step := range []func() error{s.fill, s.fillRival, s.measure, s.storeSingly} {
		if err := step(); err != nil {
			return SpeedReport{}, err
		}
	}
	return s.report(), nil
}

// perEntry returns bytes as a share of each entry.
func (s *speed) perEntry(bytes int64) float64 { return float64(bytes) / float64(s.Entries) }

// fill makes the index and measures its memory, before there is anything else.
func (s *speed) fill() error {
	buf := make([]byte, ChainLen*s.HashLen)
	before := SettledMemory()
	watch := startSampler(before)
	err := s.storeChains(buf)
	s.peak = s.perEntry(watch.stop())
	if err != nil {
		return err
	}
	after := SettledMemory()
	s.bytes = s.perEntry(after.Since(before))
	s.mapped = s.perEntry(after.mapped(before))
	stats := s.x.stats()
	s.bytesAsStated = s.perEntry(stats.Bytes)
	if stats.Entries != int64(s.Entries) {
		return fmt.Errorf("%w: %d entries after %d different hashes were stored", ErrWrong, stats.Entries, s.Entries)
	}
	s.r = s.x.reader(s.HashLen)
	return nil
}

func (s *speed) storeChains(buf []byte) (err error) {
	if s.x, err = s.open(0, int64(s.Entries), s.HashLen); err != nil {
		return err
	}
	chains := chainCount(s.Entries)
	for i := range chains {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		chain := buf[:min(ChainLen, s.Entries-i*ChainLen)*s.HashLen]
		s.seed.fillChain(chain, i)
		if err := s.x.store(new(index.Writer), chain, s.HashLen); err != nil {
			return err
		}
		s.Progress("fill", i+1, chains)
	}
	return nil
}

// fillRival generates the keys and makes the map.
func (s *speed) fillRival() error {
	s.Progress("generate", 0, 1)
	s.keys = s.seed.allKeys(s.Entries, s.HashLen)
	s.mixed = s.seed.shuffled(s.keys, s.HashLen)
	before := SettledMemory()
	if s.rival = newGoMap(s.HashLen, s.Entries); s.rival == nil {
		return nil
	}
	chains := chainCount(s.Entries)
	for i := range chains {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		s.rival.add(part(s.keys, i, s.HashLen))
		s.Progress("fill map", i+1, chains)
	}
	s.rivalBytes = s.perEntry(SettledMemory().Since(before))
	return nil
}

// measure makes the passes: all of the chains, then all in random order, then the
// misses.
func (s *speed) measure() error {
	rng := rand.New(s.seed.stream(streamOrder, 1))
	chains := chainCount(s.Entries)
	for i, step := range []func() error{
		func() error { return s.passPair(s.keys, rng.Perm(chains), "chain", &s.chain, &s.rivalChain) },
		func() error {
			return s.passPair(s.mixed, rng.Perm(chains), "random order", &s.random, &s.rivalRandom)
		},
		s.missPass,
	} {
		for pass := range s.Passes {
			s.Progress("measure", i*s.Passes+pass, 3*s.Passes)
			if err := step(); err != nil {
				return err
			}
		}
	}
	s.Progress("measure", 3*s.Passes, 3*s.Passes)
	return nil
}

// passPair makes a pass of the index and the same of the map.
func (s *speed) passPair(keys []byte, order []int, name string, ours, rivals *passes) error {
	if err := s.pass(keys, order, name, ours); err != nil {
		return err
	}
	return s.rivalPass(keys, order, rivals)
}

// pass looks up all keys, request by request.
func (s *speed) pass(keys []byte, order []int, name string, into *passes) error {
	runtime.GC()
	start := time.Now()
	for _, i := range order {
		request := part(keys, i, s.HashLen)
		if n := s.r.leading(request); n*s.HashLen != len(request) {
			return wrong("in "+name+", a request of stored hashes", n, len(request)/s.HashLen)
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
	}
	*into = append(*into, s.perEntry(time.Since(start).Nanoseconds()))
	return nil
}

// rivalPass does the same with the map.
func (s *speed) rivalPass(keys []byte, order []int, into *passes) error {
	if s.rival == nil {
		return nil
	}
	runtime.GC()
	sum := uint64(0)
	start := time.Now()
	for _, i := range order {
		sum += s.rival.sum(part(keys, i, s.HashLen))
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
	}
	*into = append(*into, s.perEntry(time.Since(start).Nanoseconds()))
	if n := uint64(s.Entries); sum != n*(n-1)/2 { // the numbers from 0, each once
		return fmt.Errorf("indexbench: the Go map lost a key; is this machine sound?")
	}
	return nil
}

// missPass looks up requests that overlap in memory: each begins one hash behind
// the one before, so a few MiB hold as many different first hashes as are needed.
func (s *speed) missPass() error {
	blob := make([]byte, (s.misses+MissLen)*s.HashLen)
	_, _ = s.seed.stream(streamAbsent, uint64(len(s.miss))).Read(blob) // documented never to fail
	runtime.GC()
	start := time.Now()
	for at := 0; at < s.misses; {
		n := s.r.leading(blob[at*s.HashLen : (at+MissLen)*s.HashLen])
		if n != 0 {
			return wrong("a request whose first hash was never stored", n, MissLen)
		}
		at += 1 + n
	}
	s.miss = append(s.miss, float64(time.Since(start).Nanoseconds())/float64(s.misses))
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// storeSingly stores the first keys in an index of their own, each as a chain of one
// hash, once a pass.
func (s *speed) storeSingly() error {
	n := min(s.Entries, singleEntries)
	for pass := range s.Passes {
		s.Progress("single stores", pass, s.Passes)
		x, err := s.open(0, int64(n), s.HashLen)
		if err != nil {
			return err
		}
		runtime.GC()
		start := time.Now()
		for i := range n {
			if err := x.store(new(index.Writer), s.keys[i*s.HashLen:(i+1)*s.HashLen], s.HashLen); err != nil {
				return err
			}
			if i%ChainLen == 0 && s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
		}
		s.single = append(s.single, float64(n)/time.Since(start).Seconds())
		stats := x.stats()
		if stats.Entries != int64(n) {
			return fmt.Errorf("%w: %d entries after %d different hashes were stored one by one", ErrWrong, stats.Entries, n)
		}
		s.singleBytes = float64(stats.Bytes) / float64(n)
	}
	s.Progress("single stores", s.Passes, s.Passes)
	return nil
}
