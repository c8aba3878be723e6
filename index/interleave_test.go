//go:build hitline_interleave

package index

import (
	"iter"
	"math/bits"
	"strings"
	"testing"
)

// An explorer runs goroutines one at a time, in every order of their steps. A step is an
// operation at which the explorer lets others go first, and all that its goroutine does up to
// the next one. Each execution begins anew, in a new world, and repeats the choices of the one
// before up to the last at which another goroutine can be chosen.

// task is a goroutine of an execution. Its code is deterministic.
type task struct {
	name string
	run  func()

	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	pending operation // the step it takes next
	waits   bool      // if pending does
	done    bool
	// history summarizes the results of its operations: all that decides how it goes on.
	history uint64
	place   int // see at
	counted int // see gateTest
	since   []operation
	late    operation // a fault has put it off, if its object is not nil
	isLate  bool      // it is being done
}

// world is what tasks run on.
type world struct {
	tasks []*task
	// yields tells which operations others may go in front of. Operations that wait are always
	// such.
	yields func(o operation) bool
	// check is called whenever a step is done.
	check func()
	// finish is called when all tasks are done.
	finish func()
	// did is called after each operation; may be nil.
	did func(t *task, o operation, result int64)
	// fault changes an operation, see fault; since are those of its goroutine since the last
	// call of task.at. May be nil.
	fault func(t *task, o operation, since []operation) fault
	// arrives is called before an operation that others may go in front of. It may set the
	// history to less than that, if the goroutine goes on in the same way. May be nil.
	arrives func(t *task, o operation)
	// matters returns what its goroutine makes of a result; if it is nil, all of it.
	matters func(o operation, result int64) int64
	// state returns a value that is equal for two states of the shared variables only if they
	// are. If it is nil, no states are taken for the same.
	state func() any
	// commute tells whether two steps, of which neither has been done, have the same effect in
	// either order. Only one of the orders is tried then. May be nil.
	commute func(a, b operation) bool
}

// fault is what is done instead of an operation.
type fault int

const (
	noFault  fault = iota
	drop           // nothing; the result is 0
	postpone       // it is the step behind the next operation of its goroutine; the result is 0
)

// actMark is a step that only lets others go first.
const actMark action = 100

// abandoned is what a goroutine panics with whose execution goes no further.
type abandoned struct{}

// explorer tries all orders.
type explorer struct {
	make  func() *world
	limit int // of executions

	executions, steps int
	w                 *world
	running           *task
	abandoning        bool
	path              []choice
	visited           map[any]bool
	trace             []step // of the execution
}

// step is a step that was done.
type step struct {
	task      *task
	operation operation
}

// choice is which task was chosen at a state.
type choice struct {
	chosen int
	left   uint64 // tasks to be chosen later
	asleep uint64 // tasks whose next step has been tried, and commutes with all since then
}

// failure is a property that does not hold; the explorer adds the path to it.
type failure struct{ text string }

// explore returns what is wrong in the first execution in which something is, "" if there is
// none.
func (e *explorer) explore() (wrong string) {
	interleave = e.operate
	defer func() { interleave = nil }()
	e.visited = map[any]bool{}
	for e.executions = 1; ; e.executions++ {
		if wrong = e.execute(); wrong != "" {
			return wrong
		}
		for len(e.path) > 0 && e.path[len(e.path)-1].left == 0 {
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			return ""
		}
		if e.executions == e.limit {
			return "more executions than there should be"
		}
		last := &e.path[len(e.path)-1]
		last.asleep |= 1 << last.chosen
		last.chosen = bits.TrailingZeros64(last.left)
		last.left &^= 1 << last.chosen
	}
}

// execute runs one execution.
func (e *explorer) execute() (wrong string) {
	interleave = nil // the world is made without
	e.w = e.make()
	interleave = e.operate
	e.trace = e.trace[:0]
	defer func() {
		e.abandoning = true
		for _, t := range e.w.tasks {
			t.stop()
		}
		e.abandoning = false
		if wrong != "" {
			var lines []string
			for _, s := range e.trace {
				lines = append(lines, s.task.name+": "+s.operation.String())
			}
			wrong += "\n" + strings.Join(lines, "\n")
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			wrong = f.text
		}
	}()
	for _, t := range e.w.tasks {
		t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
			t.yield = yield
			defer func() {
				t.done = true
				if p := recover(); p != nil && p != any(abandoned{}) {
					panic(p)
				}
			}()
			mark()
			t.since = t.since[:0]
			t.run()
		})
		e.resume(t) // to the first mark
	}
	asleep := uint64(0)
	for depth := 0; ; depth++ {
		able, unfinished := e.able()
		if able == 0 {
			if unfinished > 0 {
				return "a deadlock"
			}
			interleave = nil
			e.w.finish()
			return ""
		}
		if depth == len(e.path) {
			able &^= asleep
			if able == 0 || e.known() {
				return "" // another execution goes on from here
			}
			first := bits.TrailingZeros64(able)
			e.path = append(e.path, choice{first, able &^ (1 << first), asleep})
		}
		c := e.path[depth]
		t := e.w.tasks[c.chosen]
		asleep = 0
		for i, other := range e.w.tasks {
			if e.w.commute != nil && c.asleep>>i&1 == 1 && e.w.commute(t.pending, other.pending) {
				asleep |= 1 << i
			}
		}
		e.trace = append(e.trace, step{t, t.pending})
		e.steps++
		e.resume(t)
		e.w.check()
	}
}

// able returns the set of tasks that can take their next step, and how many are not done.
func (e *explorer) able() (able uint64, unfinished int) {
	for i, t := range e.w.tasks {
		if t.done {
			continue
		}
		unfinished++
		if !t.waits || !t.pending.waits() {
			able |= 1 << i
		}
	}
	return able, unfinished
}

// known tells whether the state was reached before, and remembers it.
func (e *explorer) known() bool {
	if e.w.state == nil {
		return false
	}
	type state struct {
		shared any
		tasks  [6]uint64
		late   [6]bool
	}
	s := state{shared: e.w.state()}
	for i, t := range e.w.tasks {
		s.tasks[i], s.late[i] = t.history, t.late.object != nil
	}
	if e.visited[s] {
		return true
	}
	e.visited[s] = true
	return false
}

func (e *explorer) resume(t *task) {
	e.running = t
	t.next()
	e.running = nil
}

// operate is called by the running task for each of its operations.
func (e *explorer) operate(o operation) int64 {
	t := e.running
	if e.abandoning {
		if o.action == actMark || o.waits() {
			return 0
		}
		return o.perform()
	}
	change := noFault
	if e.w.fault != nil && !t.isLate {
		change = e.w.fault(t, o, t.since)
		t.since = append(t.since, o)
	}
	if change == noFault && o.waits() || o.action == actMark || e.w.yields(o) {
		if t.pending, t.waits = o, change == noFault; e.w.arrives != nil && e.w.fault == nil {
			e.w.arrives(t, o)
		}
		if !t.yield(struct{}{}) {
			panic(abandoned{})
		}
	}
	result := int64(0)
	late := t.late
	t.late = operation{}
	switch {
	case change == postpone:
		t.late = o
	case change == noFault && o.action != actMark:
		result = o.perform()
	}
	if e.w.state != nil {
		matters := result
		if e.w.matters != nil {
			matters = e.w.matters(o, result)
		}
		t.history = mix64(t.history, uint64(matters))
	}
	if e.w.did != nil {
		e.w.did(t, o, result)
	}
	if late.object != nil {
		t.isLate = true
		e.operate(late)
		t.isLate = false
	}
	return result
}

// mark is a step of a test.
func mark() { interleave(operation{action: actMark}) }

// at says that what the task does next depends on its place in the test alone.
func (t *task) at(place int) {
	t.place, t.since = place, t.since[:0]
	t.only(0)
}

// only says that what the task does next depends on its place in the test and on a value.
func (t *task) only(value int) { t.history = mix64(uint64(t.place), uint64(value)) }

func mix64(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return bits.RotateLeft64(hi^lo, 23) + (b+1)*0xff51afd7ed558ccd
}

func fail(text string) { panic(failure{text}) }

// String names the operation, not the object.
func (o operation) String() string {
	var what string
	switch o.object.(type) {
	case *syncBool:
		what = "bool"
	case *syncInt32:
		what = "count"
	case *syncUint64:
		what = "number"
	case *syncMutex:
		what = "mutex"
	case *wakeup:
		what = "wakeup"
	}
	names := map[action]string{
		actLoad: "load", actStore: "store", actAdd: "add", actLock: "lock", actTryLock: "try to lock",
		actUnlock: "unlock", actSend: "send", actWait: "wait", actMark: "mark",
	}
	return names[o.action] + " " + what
}

// lower sets the bounds for a test.
func lower(t *testing.T, tries, work int) {
	t.Helper()
	gateTries, holdWork = tries, work
	t.Cleanup(func() { gateTries, holdWork = usualGateTries, usualHoldWork })
}
