package tokens

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// expects returns how many blocks behind the start of a prompt are expected of the pool.
func (b *bench) expects(ids []uint64, start int) int {
	r := b.account.NewAsk("x", Prompt{NumTokens: int64(4 * len(ids)), Start: int64(4 * start), NumHashes: len(ids) - start})
	r.AddHashes(hashesOf(ids[start:]), 32)
	defer r.Drop()
	return r.Expected(b.now)
}

// The blocks that were asked for are expected, from the save of their engine on, until half of what the pool remembers is over.
func TestExpected(t *testing.T) {
	b := newBench(t, false, 1<<20)
	b.pass(time.Hour)
	ids := chain(100)
	assert.Zero(t, b.expects(ids, 0), "nobody asked for it")
	b.ask("a", ids[:60], 0)
	assert.Zero(t, b.expects(ids, 0), "who asks again at once has not saved it")
	b.pass(askGap + time.Second)
	assert.Equal(t, 60, b.expects(ids, 0), "it is being saved")
	b.pass(defaultFirstLook)
	assert.Zero(t, b.expects(ids, 0), "it was not saved")
	b.ask("a", ids[:60], 60)
	b.pass(time.Minute)
	assert.Equal(t, 60, b.expects(ids, 0))
	assert.Equal(t, 50, b.expects(ids, 10))
	assert.Zero(t, b.expects(ids, 60))
	assert.Equal(t, 40, b.expects(ids[:40], 0))
	b.pass(maxTrusted)
	assert.Zero(t, b.expects(ids, 0), "nobody knows if it is there yet")

	b.ask("a", ids, 60)
	for range 20 { // the pool remembers for less than a minute
		b.ask("b", []uint64{200, 201}, 2)
		b.pass(time.Minute)
		b.ask("b", []uint64{200, 201}, 0)
	}
	b.ask("a", ids, 60)
	b.pass(10 * time.Second)
	assert.Equal(t, 60, b.expects(ids, 0), "nobody has seen the rest")
	b.pass(30 * time.Second)
	assert.Zero(t, b.expects(ids, 0))
	b.ask("a", ids, 60)
	b.recorder.Record(b.account.NewEmptied(true), b.now)
	b.recorder.accounts.Flush()
	assert.Zero(t, b.expects(ids, 0), "the store was emptied")
}

// A table that has forgotten what was asked for early trusts what was found no longer than half as long as it reaches back.
func TestExpectedOfFullTable(t *testing.T) {
	b := newBench(t, false, 1)
	b.pass(time.Hour)
	ids := chain(100)
	b.ask("a", ids, 100)
	assert.Equal(t, 100, b.expects(ids, 0))
	for i := range uint64(20) {
		more := chain(150)
		for j := range more {
			more[j] += 1000 * (i + 1)
		}
		b.ask("a", more, 150)
		b.ask("a", ids, 100)
		b.pass(time.Second)
	}
	assert.InDelta(t, 100, b.expects(ids, 0), 10, "not each block is tracked")
	b.pass(time.Minute)
	assert.Zero(t, b.expects(ids, 0))
}

// Of a prompt whose first block is in the pool no more is expected than was found: others have that block, too.
func TestExpectedOfPartOfAPrompt(t *testing.T) {
	b := newBench(t, false, 1<<20)
	b.pass(time.Hour)
	ids := chain(100)
	b.ask("a", ids, 40)
	assert.Equal(t, 40, b.expects(ids, 0))
	for range 10 {
		b.pass(30 * time.Second)
		b.ask("b", ids[:40], 40)
	}
	assert.Equal(t, 40, b.expects(ids, 0), "nobody has saved the rest")
	b.ask("a", ids, 40)
	assert.Equal(t, 40, b.expects(ids, 0))
}
