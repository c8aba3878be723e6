//go:build hitline_interleave

package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// gateTest is tasks on a gate.
type gateTest struct {
	name    string
	slots   int
	readers []int // the slot of each
	passes  int   // how often a reader passes before it leaves
	writers int
	turns   int // how often a writer locks
	tries   int // see gateTries
}

var gateTests = []gateTest{
	{name: "one slot", slots: 1, readers: []int{0, 0}, writers: 1, turns: 2, tries: 1},
	{name: "two slots", slots: 2, readers: []int{0, 1}, writers: 1, turns: 2, tries: 1},
	{name: "two slots, three readers", slots: 2, readers: []int{0, 0, 1}, writers: 1, turns: 1, tries: 1},
	{name: "two writers", slots: 1, readers: []int{0, 0}, writers: 2, turns: 1, tries: 1},
	{name: "two writers, two slots", slots: 2, readers: []int{0, 1}, writers: 2, turns: 1, tries: 1},
	{name: "passes", slots: 2, readers: []int{0, 1}, passes: 1, writers: 1, turns: 1, tries: 1},
	{name: "passes in one slot", slots: 1, readers: []int{0, 0}, passes: 1, writers: 2, turns: 1, tries: 1},
	{name: "no tries", slots: 2, readers: []int{0, 0, 1}, writers: 2, turns: 1, tries: 0},
	{name: "two tries", slots: 1, readers: []int{0, 0}, writers: 1, turns: 1, tries: 2},
}

// world returns tasks that enter and leave a new gate. Inside, each takes a step, so that one
// that does not keep others out meets them.
func (c gateTest) world() *world {
	g := &gate{}
	g.init()
	g.slots = make([]reader, c.slots)
	reading, writing := 0, 0
	w := &world{yields: func(operation) bool { return true }}
	add := func(name string, run func(t *task)) {
		t := &task{name: name}
		t.run = func() { run(t) }
		w.tasks = append(w.tasks, t)
	}
	for i, at := range c.readers {
		r := &g.slots[at]
		add(fmt.Sprintf("reader %d", i), func(t *task) {
			for n := range c.passes + 1 {
				if n == 0 {
					g.enter(r)
				} else {
					g.pass(r)
				}
				reading++
				t.forget(n + 1)
				mark()
				reading--
			}
			g.leave(r)
		})
	}
	for i := range c.writers {
		add(fmt.Sprintf("writer %d", i), func(t *task) {
			for n := range c.turns {
				g.Lock()
				writing++
				t.forget(2*n + 1)
				mark()
				writing--
				g.Unlock()
				t.forget(2*n + 2)
			}
		})
	}
	w.check = func() {
		if writing > 1 || writing == 1 && reading > 0 {
			fail(fmt.Sprintf("%d readers and %d writers are inside together", reading, writing))
		}
	}
	w.finish = func() {
		for i := range g.slots {
			if n := g.slots[i].inside.value.Load(); n != 0 {
				fail(fmt.Sprintf("slot %d has %d readers in the end", i, n))
			}
		}
		if g.closed.value.Load() || g.parked.value.Load() || g.writer.held {
			fail("the gate is left closed")
		}
	}
	w.matters = func(o operation, result int64) int64 {
		if _, ok := o.object.(*syncInt32); ok { // the gate compares counts with 0
			return truth(result == 0)
		}
		return result
	}
	type state struct {
		inside         [2]int32
		closed, parked bool
		held           bool
		sent           int
	}
	w.state = func() any {
		s := state{closed: g.closed.value.Load(), parked: g.parked.value.Load(), held: g.writer.held, sent: len(g.left.sent)}
		for i := range g.slots {
			s.inside[i] = g.slots[i].inside.value.Load()
		}
		return s
	}
	return w
}

// TestInterleavedGate runs readers and writers through a gate in every order of their atomic
// operations: no writer is inside with another task, none waits for ever, and the gate is as
// new in the end.
func TestInterleavedGate(t *testing.T) {
	for _, c := range gateTests {
		t.Run(c.name, func(t *testing.T) {
			lower(t, c.tries, usualHoldWork)
			e := explorer{make: c.world, limit: 1 << 22}
			require.Empty(t, e.explore())
			t.Logf("%d states, %d executions, %d steps", len(e.visited), e.executions, e.steps)
		})
	}
}
