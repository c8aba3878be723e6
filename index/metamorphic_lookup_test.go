package index_test

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/index"
)

// lookup runs a lookup and what happens in its middle.
func (w *world) lookup(o op, c *index.Cursor) error {
	c.Quiet = o.quiet
	w.x.Begin(c, w.lens[o.length])
	p := w.newProber(c, o)
	if err := p.upTo(len(o.ids) / 2); err != nil {
		return err
	}
	for i, in := range o.inner {
		if err := w.do(in, 1); err != nil {
			return fmt.Errorf("half-way, operation %d: %w", i, err)
		}
	}
	if err := p.upTo(len(o.ids)); err != nil {
		return err
	}
	if o.drop {
		c.Drop()
		return nil
	}
	return p.end()
}

// prober feeds a lookup to the index and compares the answers with the model.
type prober struct {
	*world
	c    *index.Cursor
	o    op
	keys []byte
	runs []index.Run
	at   int // the next key asked
	done bool
	then func(id uint16, held places) error

	// As they were at Begin, or when a Probe last told of a reset.
	resets int
}

func (w *world) newProber(c *index.Cursor, o op) *prober {
	p := &prober{world: w, c: c, o: o, keys: w.keys(o.ids, o.length), runs: make([]index.Run, w.setting.runs)}
	p.sync()
	return p
}

func (p *prober) sync() {
	p.resets = p.world.resets
}

// upTo probes the keys asked before the given one.
func (p *prober) upTo(end int) error {
	hashLen := p.lens[p.o.length]
	for from := 0; from < end; from += p.piece { // pieces lie alike whatever was done before
		to := min(from+p.piece, end)
		for p.at < to && !p.done {
			if err := p.probe(p.keys[p.at*hashLen : to*hashLen]); err != nil {
				return fmt.Errorf("lookup, key %d of %d: %w", p.at, len(p.o.ids), err)
			}
		}
	}
	return nil
}

// probe makes one call.
func (p *prober) probe(keys []byte) error {
	hashLen := p.lens[p.o.length]
	filled, covered, clean := p.x.Probe(p.c, keys, p.o.stride, p.runs, p.o.stop)
	if want := p.resets == p.world.resets; clean != want {
		return fmt.Errorf("clean is %v", clean)
	}
	if !clean {
		p.sync()
	}
	if filled < 1 || filled > len(p.runs) || covered < 1 || (covered-1)*p.o.stride*hashLen >= len(keys) {
		return fmt.Errorf("%d runs of %d filled, %d keys covered of %d bytes", filled, len(p.runs), covered, len(keys))
	}
	for i, run := range p.runs[:filled] {
		if run.N < 1 || run.N > covered {
			return fmt.Errorf("run %d has %d keys", i, run.N)
		}
		covered -= run.N
		for range run.N {
			if err := p.take(run.Coverage); err != nil {
				return err
			}
		}
	}
	if covered != 0 {
		return fmt.Errorf("%d keys are covered and in no run", covered)
	}
	return nil
}

// take compares the coverage of the next key with the model.
func (p *prober) take(cov *index.Coverage) error {
	id := p.o.ids[p.at]
	held, err := read(cov)
	if err != nil {
		return err
	}
	want := p.held[p.o.length][id]
	switch {
	case p.done:
		return errors.New("probed behind the first absent key")
	case held&^want != 0:
		return fmt.Errorf("id %d is said to be at places %04b, the model says %04b", id, held, want)
	case !p.bounded && held != want:
		return fmt.Errorf("id %d is at places %04b, the index says %04b", id, want, held)
	}
	if known, ok := p.coverage[held]; ok && known != cov {
		return fmt.Errorf("two coverages for places %04b", held)
	}
	p.coverage[held] = cov
	p.done = p.o.stop && cov == nil
	p.at += p.o.stride
	if p.then != nil {
		return p.then(id, held)
	}
	return nil
}

// end finishes the lookup and checks what End says.
func (p *prober) end() error {
	if clean, want := p.x.End(p.c), p.resets == p.world.resets; clean != want {
		return fmt.Errorf("clean is %v at the end", clean)
	}
	return nil
}
