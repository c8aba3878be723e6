//go:build linux

package load

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/hitline/hitline/bench/wire"
)

// stage is one stretch of work of all workers: the storing, a step, the end. Times
// are ns of the run.
type stage struct {
	start    int64   // of the warm-up
	begin    int64   // of the measuring
	end      int64   // of the asking; math.MaxInt64: when budgets or sources end
	measures bool    // else nothing is counted
	period   float64 // ns from one arrival to the next, over all workers; 0: closed loop
	workers  int     // that take arrivals in turn
}

// answeredWithin reports whether a request that is answered now counts, also if it was sent
// in the warm-up: such requests make up for those under way at the end. In a stage of a
// number of requests only these count.
func (s *stage) answeredWithin(now int64) bool {
	return s.end < math.MaxInt64 && now >= s.begin && now <= s.end
}

// tick is how long a worker waits for anything before it looks around: at its
// deadlines, and whether to stop.
const tick = 20 * time.Millisecond

// worker serves some connections from one thread. Not safe for concurrent use.
type worker struct {
	number     int
	run        *runner
	conns      []*conn
	poller     *wire.Poller              // nil: the only connection blocks
	recordFunc func(*conn, checkedReply) // w.record, made once

	stage       stage
	now         int64
	lastCheck   int64  // when all connections were last looked at
	inFlight    int    // requests
	numSendable int    // connections that may still ask
	arrivals    int64  // that fell due
	tally       *tally // of a stage that measures
}

// newWorker returns a worker of these connections, which watches them unless the
// only one blocks. The caller closes it.
func newWorker(number int, r *runner, conns []*conn) (*worker, error) {
	w := &worker{number: number, run: r, conns: conns}
	w.recordFunc = w.record
	if conns[0].socket.Waits() {
		return w, nil
	}
	var err error
	w.poller, err = wire.NewPoller(min(len(conns), 256))
	for i := 0; i < len(conns) && err == nil; i++ {
		err = w.poller.Add(i, conns[i].socket)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *worker) close() {
	if w.poller != nil {
		w.poller.Close()
	}
}

// work does one stage and returns when all answers have come, the run was stopped,
// or a connection failed.
func (w *worker) work(s stage) error {
	runtime.LockOSThread() // without unlocking, the thread ends with the goroutine
	w.begin(s)
	defer w.finish()
	for i := range w.conns {
		if err := w.fill(i); err != nil {
			return err
		}
	}
	for !w.run.stopped.Load() {
		if err := w.addDue(); err != nil {
			return err
		}
		if w.finished() {
			return nil
		}
		if err := w.serveReady(); err != nil {
			return err
		}
		if err := w.checkTimeouts(); err != nil {
			return err
		}
	}
	return nil
}

// begin takes up a stage.
func (w *worker) begin(s stage) {
	w.stage, w.arrivals, w.numSendable = s, 0, 0
	w.now = w.run.clock()
	w.lastCheck = w.now
	for _, c := range w.conns {
		c.taken = 0
		if c.canSend() {
			w.numSendable++
		}
	}
	w.tally = nil
	if s.measures {
		w.tally = newTally(s.begin)
	}
	if s.period > 0 {
		wire.SetTimerSlack()
	}
}

// finished reports whether nothing is left to do.
func (w *worker) finished() bool {
	switch {
	case w.inFlight > 0:
		return false
	case w.now >= w.stage.end || w.numSendable == 0:
		return true
	}
	return w.stage.period == 0 // each connection was asked to go on, and none did
}

// addDue makes the requests that have fallen due in an open loop. Those that a
// connection has no room for wait there. What it does is bounded by the connections,
// however many fall due: answers are to be read, too.
func (w *worker) addDue() error {
	if w.stage.period == 0 {
		return nil
	}
	from, n := w.arrivals, int64(len(w.conns))
	w.arrivals = max(from, w.dueBy(min(w.now, w.stage.end-1)))
	for arrival := from; arrival < min(w.arrivals, from+n); arrival++ {
		w.now = w.run.clock()
		if err := w.fill(int(arrival % n)); err != nil {
			return err
		}
	}
	return nil
}

// dueAt is when a request of an open loop falls due, counted at this worker from 0.
func (w *worker) dueAt(arrival int64) int64 {
	turn := float64(w.number) + float64(arrival)*float64(w.stage.workers)
	return w.stage.start + int64(turn*w.stage.period)
}

// dueBy returns how many requests have fallen due at this worker by a time.
func (w *worker) dueBy(now int64) int64 {
	turns := float64(now-w.stage.start) / w.stage.period
	n := max(int64((turns-float64(w.number))/float64(w.stage.workers)), 0)
	for n > 0 && w.dueAt(n-1) > now { // what rounding has added
		n--
	}
	for w.dueAt(n) <= now {
		n++
	}
	return n
}

// turns returns how many of the first arrivals fell due at a connection.
func (w *worker) turns(arrivals int64, i int) int64 {
	n := int64(len(w.conns))
	return (arrivals - int64(i) + n - 1) / n
}

// backlog returns how many of the requests that fell due at a connection, which
// take turns, have not been made.
func (w *worker) backlog(i int) int64 { return w.turns(w.arrivals, i) - w.conns[i].taken }

// countUnsent records the requests of a connection's backlog that fell due while measuring,
// but none beyond those that were to be counted out. They have waited at least until now.
func (w *worker) countUnsent(i int) {
	c := w.conns[i]
	first, last := max(c.taken, w.turns(w.dueBy(w.stage.begin-1), i)), w.turns(w.arrivals, i)
	if c.budget >= 0 {
		last = min(last, first+c.budget)
	}
	for turn := first; turn < last; turn++ {
		w.tally.recordUnsent(w.now - w.dueOn(i, turn))
	}
}

// abandon counts the lookups that are under way where a run is cut short: a server that
// has stalled may be why. What has waited for less than a tick tells of no stall.
func (w *worker) abandon(c *conn) {
	for n := c.answered; n < c.asked; n++ {
		s := &c.slots[n%int64(len(c.slots))]
		if s.counts && w.now-s.start >= int64(tick) {
			w.tally.abandoned(s.start, w.now)
		}
	}
}

// dueOn is when a connection's request falls due, counted at it from 0.
func (w *worker) dueOn(i int, turn int64) int64 {
	return w.dueAt(turn*int64(len(w.conns)) + int64(i))
}

// fill makes what requests a connection has room for, and sends them.
func (w *worker) fill(i int) error {
	c := w.conns[i]
	for !c.full() && w.now < w.stage.end {
		start := w.now
		if w.stage.period > 0 {
			if w.backlog(i) <= 0 {
				break
			}
			start = w.dueOn(i, c.taken)
			c.taken++
		}
		if c.ask(start, w.now, start >= w.stage.begin) {
			w.inFlight++
		}
		if !c.canSend() {
			w.numSendable--
		}
	}
	if !c.unsent() {
		return nil
	}
	if err := c.send(); err != nil {
		return w.failed(c, err)
	}
	if c.waiting != c.unsent() && w.poller != nil {
		c.waiting = c.unsent()
		return w.poller.Watch(i, c.socket, c.waiting)
	}
	return nil
}

// serveReady waits until something has come, for a tick at most or until the next
// request falls due, and serves it.
func (w *worker) serveReady() error {
	switch {
	case w.poller == nil && w.inFlight > 0:
		return w.serve(0)
	case w.poller == nil: // an open loop
		w.sleepUntilDue()
		return nil
	}
	patience, precise := w.patience()
	ready := w.poller.Wait(patience, precise)
	w.now = w.run.clock()
	for _, i := range ready {
		if err := w.serve(i); err != nil {
			return err
		}
	}
	return nil
}

// patience is for how many ns the thread may sleep, unless an answer comes, and whether
// that is to be kept to.
func (w *worker) patience() (ns int64, precise bool) {
	full := w.inFlight == len(w.conns)*len(w.conns[0].slots) // nothing can be sent before an answer
	if w.stage.period == 0 || full || w.now >= w.stage.end {
		return int64(tick), false
	}
	return max(min(int64(tick), w.dueAt(w.arrivals)-w.now-w.awake()), 0), true
}

// A timer of the kernel may fire late, so an open loop sleeps only until this many ns
// before a request falls due, and polls from then on. While it awaits answers it polls
// for less: an answer that ends the sleep costs no more than in a closed loop.
const (
	awakeForAnswers = 50_000
	awakeIdle       = 250_000
)

// awake returns for how long before a request falls due the thread does not sleep.
func (w *worker) awake() int64 {
	if w.inFlight > 0 {
		return awakeForAnswers
	}
	return awakeIdle
}

// sleepUntilDue waits for most of the time until the next request falls due, for a tick
// at most.
func (w *worker) sleepUntilDue() {
	if left := min(w.dueAt(w.arrivals)-w.now-awakeIdle, int64(tick)); left > 0 {
		wire.Sleep(left)
	}
	w.now = w.run.clock()
}

// serve takes what has come on a connection, and goes on asking.
func (w *worker) serve(i int) error {
	c := w.conns[i]
	var err error
	if !c.unsent() || w.poller != nil { // else waiting for an answer would only hold the request up
		err = c.receive()
	}
	w.now = w.run.clock()
	if err == nil {
		err = c.checkReplies(w.now, w.run.o.Timeout, w.recordFunc)
	}
	if err != nil {
		return w.failed(c, err)
	}
	return w.fill(i)
}

// checkTimeouts sees, once a tick, whether answers are overdue.
func (w *worker) checkTimeouts() error {
	if w.now-w.lastCheck < int64(tick) {
		return nil
	}
	w.lastCheck = w.now
	for _, c := range w.conns {
		if err := c.overdue(w.now, w.run.o.Timeout); err != nil {
			return w.failed(c, err)
		}
	}
	return nil
}

// failed says which request met err. A run that is stopped needs no reasons.
func (w *worker) failed(c *conn, err error) error {
	return fmt.Errorf("request %d on connection %d to %s: %w", c.answered+1, c.number, w.run.o.Connect, err)
}

// record counts an answer.
func (w *worker) record(c *conn, a checkedReply) {
	w.inFlight--
	s := a.slot
	if a.problem != "" {
		w.run.problem(c, a)
	}
	if w.tally == nil {
		return
	}
	if s.counts { // after the end, too: without those a stall across it would not show
		w.tally.took(w.now - s.start)
	}
	if w.now > w.stage.end || !s.counts && !w.stage.answeredWithin(w.now) {
		return
	}
	w.tally.requests++
}

// finish completes what was measured.
func (w *worker) finish() {
	if w.tally == nil {
		return
	}
	w.tally.to = min(max(w.now, w.tally.from), w.stage.end)
	for i, c := range w.conns {
		w.abandon(c)
		if w.stage.period > 0 {
			w.countUnsent(i)
		}
	}
}
