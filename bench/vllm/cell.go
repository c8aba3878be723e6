//go:build linux

package vllm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Names of the sides, as over_master.py has them.
const (
	vllm        = "vllm"
	hitline     = "hitline"     // remembers no answer of the store, nor what was asked
	knowing     = "knowing"     // remembers no answer of the store
	remembering = "remembering" // hitline as it is by default
	outdated    = "outdated"    // remembers no answer of the store, and has been asked for what is no longer stored
	prepared    = "bytes"       // the master's own answer, without a lookup
)

// Ask is how prompts are asked for.
type Ask string

// Ways to ask.
const (
	First   Ask = "first"        // with nothing remembered
	Known   Ask = "known"        // once more, after the lease of the first time
	Gone    Ask = "gone"         // once more, as long after it was found as hitline had run by then: too long to expect it
	Again   Ask = "again"        // a second time at once
	Blocked Ask = "blocked head" // the same prompt at each of a scheduler's steps
	Turns   Ask = "turns"        // each prompt is the one before and a new turn; the engine itself has all but that
)

const (
	stepPeriod  = 30 * time.Millisecond // of Blocked
	numTurns    = 6                     // of a conversation, and prompts that are gone; as many for each round
	turnPercent = 3                     // hashes of a turn, of those that the engine has at the first
)

// cell is a set of stored prompts, and how they are asked for, a row each.
type cell struct {
	Shape  Shape
	Stored Presence
	asks   []Ask
}

func (c cell) String() string { return fmt.Sprintf("%v, %s stored", c.Shape, c.Stored) }

// prompt is a prompt of over_master.py.
type prompt struct {
	Chain  int `json:"chain"`
	Hashes int `json:"hashes"`
	Start  int `json:"start"` // hashes that the engine itself has
	Told   int `json:"told"`  // leading hashes that tell the hit: bytes ask for these
}

// request is one of over_master.py: what to do, and with what.
type request map[string]any

// hitlineStat holds counters of hitline since its start.
type hitlineStat struct {
	Lookups int64 `json:"lookups"`
	Rounds  int64 `json:"backend_rounds"`
	Keys    int64 `json:"backend_keys"`

	Errors   int64 `json:"backend_errors"`
	Timeouts int64 `json:"backend_timeouts"`
	Rejected int64 `json:"backend_rejected"`
}

// measurement measures the rows of a cell.
type measurement struct {
	cell
	o             Options
	store, engine *process.Child
	started       time.Time // when the hitlines were
	asked         int       // keys that the release asks for in a lookup
}

// seed differs for each cell, and so do the chains made of it.
func (m *measurement) seed() string { return fmt.Sprintf("%d, %v", m.o.Seed, m.cell) }

// run stores the prompts, measures the rows, and removes the prompts.
func (m *measurement) run(ctx context.Context) ([]Row, error) {
	if err := m.putPrompts(ctx); err != nil {
		return nil, err
	}
	if m.Stored == Removed {
		if err := m.removeFound(ctx); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, ask := range m.asks {
		row, err := m.row(ctx, ask)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, m.store.Do(ctx, 0, request{"do": "remove"}, &struct{}{})
}

// putPrompts stores the keys of all prompts, and has the engine make the prompts. It fails unless
// bytes find those of the keys that are stored: with other keys they would measure misses.
func (m *measurement) putPrompts(ctx context.Context) error {
	chains, prompts, present := m.prompts()
	sides := m.sides(First)
	if m.Stored == Removed {
		sides = []string{outdated} // the others would never see theirs
	}
	for _, c := range chains {
		var reply struct{ Asked int }
		put := request{
			"do": "put", "seed": m.seed(), "chain": c.number, "hashes": c.hashes, "tokens": c.hashes*blockTokens + blockTokens/2,
			"stored": c.stored, "skipped": c.skipped, "sides": sides,
		}
		if err := m.store.Do(ctx, 0, put, &reply); err != nil {
			return err
		}
		m.asked = reply.Asked
	}
	var reply struct{ Present int }
	err := m.engine.Do(ctx, 0, request{"do": "prepare", "seed": m.seed(), "prompts": prompts}, &reply)
	if err == nil && reply.Present != present*m.Shape.TP {
		err = fmt.Errorf("%w: the master has %d of %d keys", measure.ErrLost, reply.Present, present*m.Shape.TP)
	}
	return err
}

// removeFound asks hitline for the prompts, removes them, and waits until it no longer expects them.
// It fails unless all are found.
func (m *measurement) removeFound(ctx context.Context) error {
	var reply struct{ Hits map[string]map[string][2]any }
	numPrompts := numTurns * m.o.Rounds
	q := request{"do": "ask", "sides": []string{outdated}, "count": numPrompts}
	if err := m.engine.Do(ctx, m.o.Cell, q, &reply); err != nil {
		return err
	}
	found := time.Now()
	for number, hit := range reply.Hits[outdated] {
		if hit[0] == 0.0 {
			return fmt.Errorf("%w: hitline does not find prompt %s", measure.ErrLost, number)
		}
	}
	if err := m.store.Do(ctx, 0, request{"do": "remove"}, &struct{}{}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(found.Add(found.Sub(m.started)))):
	}
	return ctx.Err()
}

// prompts returns the chains that are stored, the prompts that are asked for, and how many hashes
// of them bytes find. With Turns there is a conversation for each round.
func (m *measurement) prompts() (chains []chain, prompts []prompt, present int) {
	if m.asks[0] != Turns {
		chains = m.chains(m.o)
		for _, c := range chains {
			prompts = append(prompts, prompt{Chain: c.number, Hashes: c.hashes, Told: c.told()})
			present += c.present()
		}
		return chains, prompts, present
	}
	held := m.Shape.Hashes
	turn := max(1, held*turnPercent/100)
	for i := range m.o.Rounds {
		all := held + numTurns*turn
		chains = append(chains, chain{number: i, hashes: all, stored: all})
		for t := range numTurns {
			start := held + t*turn
			prompts = append(prompts, prompt{Chain: i, Hashes: start + turn, Start: start, Told: start + turn})
			present += turn
		}
	}
	return chains, prompts, present
}

// sides returns who is asked in turn.
func (m *measurement) sides(ask Ask) []string {
	switch ask {
	case Again, Blocked:
		return []string{vllm, remembering}
	case Known:
		return []string{vllm, knowing, prepared}
	case Gone:
		return []string{vllm, outdated, prepared}
	}
	return []string{vllm, hitline, prepared}
}

// row measures one row.
func (m *measurement) row(ctx context.Context, ask Ask) (Row, error) {
	r := Row{Shape: m.Shape, Stored: m.Stored, Ask: ask, VLLMKeys: m.asked}
	sides := m.sides(ask)
	if ask != Turns && ask != Blocked && m.Stored != Removed { // each side once, to fill caches
		if err := m.ask(ctx, &r, request{"sides": sides, "count": 1}, nil); err != nil {
			return r, err
		}
	}
	ours := sides[1]
	var since, now hitlineStat
	if err := m.engine.Do(ctx, 0, request{"do": "stat", "side": ours}, &since); err != nil {
		return r, err
	}
	rounds := map[string]measure.Rounds{}
	for _, q := range m.requests(ask, sides) {
		if err := m.ask(ctx, &r, q, rounds); err != nil {
			return r, err
		}
	}
	if err := m.engine.Do(ctx, 0, request{"do": "stat", "side": ours}, &now); err != nil {
		return r, err
	}
	if ask == Blocked {
		for side, steps := range rounds {
			rounds[side] = split(steps[0], m.o.Rounds)
		}
	}
	return r, r.finish(rounds, ours, since, now)
}

// requests returns what the engine is told, one request a round.
func (m *measurement) requests(ask Ask, sides []string) (requests []request) {
	if ask == Blocked {
		for _, side := range sides {
			q := request{"sides": []string{side}, "period": stepPeriod.Seconds(), "seconds": m.o.Blocked.Seconds()}
			requests = append(requests, q)
		}
		return requests
	}
	seconds := m.o.Cell.Seconds() / float64(m.o.Rounds)
	for i := range m.o.Rounds {
		q := request{"sides": sides, "first": i, "seconds": seconds, "twice": ask == Again}
		if ask == Turns || m.Stored == Removed { // each prompt once
			q = request{"sides": sides, "first": i * numTurns, "count": numTurns}
		}
		requests = append(requests, q)
	}
	return requests
}

// ask has the engine ask, counts answers that differ, and adds the times to rounds, unless it is nil.
func (m *measurement) ask(ctx context.Context, r *Row, q request, rounds map[string]measure.Rounds) error {
	var reply struct {
		Micros  map[string][]float64
		Hits    map[string]map[string]any // by side and prompt
		Changed [][3]any                  // who, the first answer, and another one
	}
	q["do"] = "ask"
	if err := m.engine.Do(ctx, m.o.Cell+m.o.Blocked, q, &reply); err != nil {
		return err
	}
	wrong := func(who string, one, other any) {
		r.Wrong++
		m.o.OnNote(fmt.Sprintf("%v, %s: %s: hit and tail boundaries %v and %v", m.cell, r.Ask, who, one, other))
	}
	for _, c := range reply.Changed {
		wrong(fmt.Sprint(c[0])+", twice", c[1], c[2])
	}
	for side, hits := range reply.Hits {
		for number, hit := range hits {
			if theirs, ok := reply.Hits[vllm][number]; ok && !reflect.DeepEqual(theirs, hit) {
				wrong(fmt.Sprintf("vllm and %s, prompt %s", side, number), theirs, hit)
			}
		}
	}
	for side, micros := range reply.Micros {
		if rounds == nil {
			continue
		}
		if r.Ask != Blocked { // whose steps are split first
			slices.Sort(micros)
		}
		rounds[side] = append(rounds[side], micros)
	}
	return nil
}

// split splits the steps of one run into n rounds.
func split(steps []float64, n int) (rounds measure.Rounds) {
	for i := range n {
		part := slices.Clone(steps[i*len(steps)/n : (i+1)*len(steps)/n])
		if len(part) == 0 { // fewer steps than rounds
			part = slices.Clone(steps)
		}
		slices.Sort(part)
		rounds = append(rounds, part)
	}
	return rounds
}

// finish completes the row by the counters of hitline before and after the rounds. It fails if a call of the
// store failed in between: such a lookup is a hit of 0, which may be the right answer, too, so that only the
// counters show it.
func (r *Row) finish(rounds map[string]measure.Rounds, ours string, since, now hitlineStat) error {
	if n := now.Errors + now.Timeouts + now.Rejected - since.Errors - since.Timeouts - since.Rejected; n > 0 {
		return fmt.Errorf("%w: the master, or some of its answers: %d calls or lookups of hitline failed", measure.ErrLost, n)
	}
	r.VLLM, r.Hitline = rounds[vllm].Times(), rounds[ours].Times()
	r.P50Ratio = rounds[vllm].Ratio(rounds[ours])
	if other, ok := rounds[prepared]; ok {
		r.Bytes = &Other{other.Times(), other.Ratio(rounds[ours])}
	}
	lookups := float64(max(1, now.Lookups-since.Lookups))
	r.HitlineKeys = float64(now.Keys-since.Keys) / lookups
	r.HitlineRounds = float64(now.Rounds-since.Rounds) / lookups
	return nil
}
