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
	stripes int
	readers []int // the stripe of each
	passes  int   // how often a reader passes before it leaves
	writers int
	turns   int // how often a writer locks
	tries   int // see gateTries
	fault   func(g *gate, t *task, o operation, since []operation) fault
}

var gateTests = []gateTest{
	{name: "one stripe", stripes: 1, readers: []int{0, 0}, writers: 1, turns: 2, tries: 1},
	{name: "two stripes", stripes: 2, readers: []int{0, 1}, writers: 1, turns: 2, tries: 1},
	{name: "two writers", stripes: 1, readers: []int{0, 0}, writers: 2, turns: 1, tries: 1},
	{name: "two writers, two stripes", stripes: 2, readers: []int{0, 1}, writers: 2, turns: 1, tries: 1},
	{name: "passes", stripes: 2, readers: []int{0, 1}, passes: 1, writers: 1, turns: 1, tries: 1},
	{name: "passes in one stripe", stripes: 1, readers: []int{0, 0}, passes: 1, writers: 1, turns: 1, tries: 1},
	{name: "three readers", stripes: 2, readers: []int{0, 0, 1}, writers: 1, turns: 1, tries: 0},
	{name: "two tries", stripes: 1, readers: []int{0, 0}, writers: 1, turns: 1, tries: 2},
}

// gateRun is a gate, and how many tasks are inside it.
type gateRun struct {
	gate
	reading, writing int
}

// world returns tasks that enter and leave a new gate. Inside, each takes a step, so that one
// that does not keep others out meets them.
func (c gateTest) world() *world {
	g := &gateRun{}
	g.init()
	g.stripes = make([]readerStripe, c.stripes)
	w := &world{
		yields: func(operation) bool { return true },
		check:  g.check, finish: g.finish, arrives: g.arrives, state: g.state,
		matters: func(o operation, result int64) int64 {
			if _, ok := o.object.(*syncInt32); ok { // the gate compares counts with 0
				return truth(result == 0)
			}
			return result
		},
	}
	if c.fault != nil {
		w.fault = func(t *task, o operation, since []operation) fault { return c.fault(&g.gate, t, o, since) }
	}
	add := func(name string, run func(t *task)) {
		t := &task{name: name}
		t.run = func() { run(t) }
		w.tasks = append(w.tasks, t)
	}
	for i, at := range c.readers {
		add(fmt.Sprintf("reader %d", i), func(t *task) { g.read(t, &g.stripes[at], c.passes) })
	}
	for i := range c.writers {
		add(fmt.Sprintf("writer %d", i), func(t *task) { g.write(t, c.turns) })
	}
	return w
}

func (g *gateRun) read(t *task, r *readerStripe, passes int) {
	for n := range passes + 1 {
		if n == 0 {
			g.enter(r)
		} else {
			g.pass(r)
		}
		g.reading++
		t.at(n + 1)
		mark()
		g.reading--
	}
	g.leave(r)
}

func (g *gateRun) write(t *task, turns int) {
	for n := range turns {
		g.Lock()
		g.writing++
		t.at(2*n + 1)
		mark()
		g.writing--
		g.Unlock()
		t.at(2*n + 2)
	}
}

func (g *gateRun) check() {
	if g.writing > 1 || g.writing == 1 && g.reading > 0 {
		fail(fmt.Sprintf("%d readers and %d writers are inside together", g.reading, g.writing))
	}
}

func (g *gateRun) finish() {
	for i := range g.stripes {
		if n := g.stripes[i].inside.value.Load(); n != 0 {
			fail(fmt.Sprintf("stripe %d has %d readers in the end", i, n))
		}
	}
	if g.closed.value.Load() || g.parked.value.Load() || g.writer.held {
		fail("the gate is left closed")
	}
}

// arrives reduces what is known of a task at operations where the loops before have left no trace,
// but for the stripe that a writer is at.
func (g *gateRun) arrives(t *task, o operation) {
	switch o.object {
	case &g.writer:
		t.only(100 + int(o.action))
	case &g.parked:
		if o.action == actStore {
			t.only(2 + int(o.value) + 10*t.counted)
		}
	case &g.left:
		if o.action == actWait {
			t.only(4 + 10*t.counted)
		}
	}
	for i := range g.stripes {
		if o.object == &g.stripes[i].inside {
			t.counted = i
		}
	}
}

// gateState is what the operations on a gate have left.
type gateState struct {
	inside         [2]int32
	closed, parked bool
	held           bool
	sent           int
}

func (g *gateRun) state() any {
	s := gateState{closed: g.closed.value.Load(), parked: g.parked.value.Load(), held: g.writer.held, sent: len(g.left.sent)}
	for i := range g.stripes {
		s.inside[i] = g.stripes[i].inside.value.Load()
	}
	return s
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

// What makes the gate a lock: without any one of these the explorer finds an order that fails.
var gateFaults = []struct {
	name   string
	wrong  string // how
	change fault
	of     func(g *gate, t *task, o operation, since []operation) bool
}{
	{"a reader does not look whether the gate is closed", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actLoad && len(since) == 1
		}},
	{"a reader that tries again does not look a second time", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actLoad && len(since) > 1 && since[len(since)-1].value == 1
		}},
	{"a reader looks before it is in its stripe", "together", postpone,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.action == actAdd && o.value == 1 && len(since) == 0
		}},
	{"a reader that tries again looks before it is in its stripe", "together", postpone,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.action == actAdd && o.value == 1 && len(since) > 0
		}},
	{"a reader that has waited long takes no lock", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.writer && t.name[0] == 'r'
		}},
	{"a reader that finds the gate closed stays in its stripe", "deadlock", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.action == actAdd && o.value == -1 && since[len(since)-1].object == &g.closed
		}},
	{"a reader that finds the gate closed wakes nobody", "deadlock", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.parked && o.action == actLoad && len(since) > 2 && since[len(since)-2].object == &g.closed
		}},
	{"a reader that leaves wakes nobody", "deadlock", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.parked && o.action == actLoad && since[0].action == actMark
		}},
	{"nobody is woken", "deadlock", drop,
		func(g *gate, t *task, o operation, since []operation) bool { return o.action == actSend }},
	{"the gate is not closed", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actStore && o.value == 1
		}},
	{"the gate is closed behind the first look at a stripe", "together", postpone,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actStore && o.value == 1
		}},
	{"the gate is not opened", "left closed", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actStore && o.value == 0
		}},
	{"the gate is opened behind the end of the writer's turn", "together", postpone,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.closed && o.action == actStore && o.value == 0
		}},
	{"a writer does not wait for others", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.writer && t.name[0] == 'w'
		}},
	{"a writer does not look at the last stripe", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.stripes[len(g.stripes)-1].inside && o.action == actLoad
		}},
	{"a writer sleeps and does not say so", "deadlock", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.parked && o.action == actStore && o.value == 1
		}},
	{"a writer says that it sleeps behind its last look", "deadlock", postpone,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.parked && o.action == actStore && o.value == 1
		}},
	{"a writer that is woken does not look again", "together", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.action == actLoad && len(since) > 0 && since[len(since)-1].action == actWait
		}},
	{"a writer does not say that it is awake", "left closed", drop,
		func(g *gate, t *task, o operation, since []operation) bool {
			return o.object == &g.parked && o.action == actStore && o.value == 0
		}},
}

// TestInterleavedGateFaults leaves out one part of the gate's protocol after the other.
func TestInterleavedGateFaults(t *testing.T) {
	for _, f := range gateFaults {
		t.Run(f.name, func(t *testing.T) {
			for _, c := range gateTests {
				lower(t, c.tries, usualHoldWork)
				c.fault = func(g *gate, t *task, o operation, since []operation) fault {
					if o.action != actMark && f.of(g, t, o, since) {
						return f.change
					}
					return noFault
				}
				e := explorer{make: c.world, limit: 1 << 22}
				if wrong := e.explore(); wrong != "" {
					require.Contains(t, wrong, f.wrong)
					t.Logf("with %s: %s", c.name, wrong)
					return
				}
			}
			t.Error("is not found")
		})
	}
}
