//go:build hitline_interleave

package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// dumpTest is a dump in every order of its holds and those of other writers.
type dumpTest struct {
	name    string
	keys    int
	prepare func(h *indexRun)
	tasks   []func(h *indexRun)
	least   int // executions
}

// dumpTo dumps in the smallest holds, and returns the records and what the log says in the last hold.
func (h *indexRun) dumpTo() (records []DumpRecord, last content) {
	d, err := h.x.beginDump()
	if err != nil {
		fail(err.Error())
	}
	d.hold = workPerCall + 1
	for done := false; !done; {
		if done, err = h.x.dumpSome(d); err != nil {
			fail(err.Error())
		}
		if done {
			last = h.read() // nobody else has gone on since
		}
		_ = d.emit(func(r *DumpRecord) error {
			records = append(records, r.clone())
			return nil
		})
	}
	h.x.endDump()
	return records, last
}

// loads fails if a loaded dump holds what the log did not hold in the dump's last hold.
func (h *indexRun) loads(records []DumpRecord, last content) {
	loaded := newIndexRun(h.keys, 0)
	l := loaded.x.NewLoader()
	for i := range records {
		if err := l.Load(&records[i]); err != nil {
			fail(err.Error())
		}
	}
	for id, held := range loaded.read().held {
		if held&^last.held[id] != 0 {
			fail(fmt.Sprintf("key %d is loaded at places %b, it was at %b", id, held, last.held[id]))
		}
	}
}

func (c dumpTest) world(keys []byte) *world {
	h := newIndexRun(keys, 0)
	c.prepare(h)
	var records []DumpRecord
	var last content
	w := &world{check: func() {}, finish: func() { h.loads(records, last) }}
	w.tasks = append(w.tasks, &task{name: "the dump", run: func() { records, last = h.dumpTo() }})
	for i, run := range c.tasks {
		w.tasks = append(w.tasks, &task{name: fmt.Sprint("task ", i), run: func() { run(h) }})
	}
	w.yields = func(o operation) bool { return o.action == actLock && o.object == &h.x.writing.syncMutex }
	return w
}

// must fails with an error.
func must(err error) {
	if err != nil {
		fail(err.Error())
	}
}

// twoChains stores two chains at two places.
func twoChains(h *indexRun) {
	for first := 0; first < 30; first += 15 {
		must(h.x.Store(&Writer{}, []int{0, 1}, h.list(numbers(first, first+15)), interleaveLen))
	}
}

var dumpTests = []dumpTest{
	{
		name: "keys are evicted and stored again", keys: 40, least: 50, prepare: twoChains,
		tasks: []func(h *indexRun){func(h *indexRun) {
			_, err := h.x.Evict(0, h.list(numbers(5, 25)), interleaveLen)
			must(err)
			must(h.x.Store(&Writer{}, []int{0}, h.list(numbers(12, 18)), interleaveLen))
			_, err = h.x.Evict(1, h.list(numbers(0, 40)), interleaveLen)
			must(err)
		}},
	},
	{
		name: "one evicts and one stores", keys: 40, least: 50, prepare: twoChains,
		tasks: []func(h *indexRun){
			func(h *indexRun) {
				for place := range 2 {
					_, err := h.x.Evict(place, h.list(numbers(0, 30)), interleaveLen)
					must(err)
				}
			},
			func(h *indexRun) { must(h.x.Store(&Writer{}, []int{0}, h.list(numbers(5, 40)), interleaveLen)) },
		},
	},
	{
		name: "places are reset and stored to", keys: 40, least: 50, prepare: twoChains,
		tasks: []func(h *indexRun){func(h *indexRun) {
			must(h.x.ResetPlaces([]int{0}))
			must(h.x.Store(&Writer{}, []int{0}, h.list(numbers(8, 40)), interleaveLen))
		}},
	},
	{
		name: "a reset of places is given up", keys: 200, least: 50,
		prepare: func(h *indexRun) {
			for first := 0; first < 200; first += 50 {
				must(h.x.Store(&Writer{}, []int{0, 1}, h.list(numbers(first, first+50)), interleaveLen))
			}
		},
		tasks: []func(h *indexRun){func(h *indexRun) {
			var r PlacesReset
			must(h.x.BeginResetPlaces(&r, []int{0}))
			r.Step(1)
			r.Step(1)
			r.End()
		}},
	},
	{
		name: "all is reset, and other keys come", keys: 50, least: 50, prepare: twoChains,
		tasks: []func(h *indexRun){
			func(h *indexRun) {
				h.x.Reset()
				must(h.x.Store(&Writer{}, []int{1}, h.list(numbers(20, 50)), interleaveLen))
			},
			func(h *indexRun) {
				_, err := h.x.Evict(1, h.list(numbers(25, 30)), interleaveLen)
				must(err)
			},
		},
	},
	{
		name: "what lookups find moves", keys: 40, least: 50, prepare: twoChains,
		tasks: []func(h *indexRun){
			func(h *indexRun) {
				probe(h.x, h.list(numbers(0, 15)), interleaveLen, 64, false)
				must(h.x.Store(&Writer{}, []int{0}, h.list(numbers(30, 35)), interleaveLen))
			},
			func(h *indexRun) {
				_, err := h.x.Evict(0, h.list(numbers(8, 12)), interleaveLen)
				must(err)
			},
		},
	},
}

// TestInterleavedDump runs a dump and changes in every order of their holds.
func TestInterleavedDump(t *testing.T) {
	for _, c := range dumpTests {
		t.Run(c.name, func(t *testing.T) {
			keys := interleaveKeys(c.keys)
			e := explorer{make: func() *world { return c.world(keys) }, limit: 1 << 14}
			require.Empty(t, e.explore())
			t.Logf("%d executions, %d steps", e.executions, e.steps)
			require.GreaterOrEqual(t, e.executions, c.least)
		})
	}
}
