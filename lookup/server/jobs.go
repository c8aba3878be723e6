package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/workers"
	"github.com/hitline/hitline/netproto"
)

// The jobs of a session, from the first byte of a request to its end: begin, accept, start, submit, complete, apply.

// jobs are the jobs of a session. All fields belong to its event loop, except those that mu guards,
// and queues, which the mutexes of the worker pools guard. Workers read ctx, which is set before the first job is
// submitted, and once the connection is closed they count down submittedBytes under mu.
type jobs struct {
	session    *session
	current    *job            // being received, nil if none
	waiting    *job            // the one that must not be run yet, nil if none: see mustWait
	running    int             // that workers have or will have
	barrier    *job            // nothing after it is read before it has ended; nil if there is none
	last       map[string]*job // the last unanswered one of each envelope
	replyBytes int             // of replies that wait for those before them
	bytes      int             // job.bytes of all
	queues     [numWorkerKinds]workers.Queue

	submittedBytes int // job.bytes of those that workers have

	ctx    context.Context // ends with the connection; nil before the first job
	cancel context.CancelFunc

	mu        sync.Mutex
	completed []*job // by workers; not taken by the event loop yet
}

// begin begins a job that has hashes. It returns false if none of them is needed.
func (js *jobs) begin(q *netproto.Request) (wanted bool) {
	j := newJob(js.session, q.Tag)
	js.current = j
	if j.err = js.check(q.Tag); j.err == nil {
		j.err = j.prepare(q)
	}
	return j.err == nil && j.neededBytes > 0
}

// check returns an error if a job needs a pool and the connection has none, or if the connection
// has as many jobs as it may have.
func (js *jobs) check(tag netproto.Tag) error {
	s := js.session
	limits := s.conn.limits.Load()
	switch {
	case s.pool == nil && !operations[tag].noPool:
		return errNoPool
	case int(s.conn.unanswered.Load()) >= limits.MaxInFlight:
		return fmt.Errorf("%w: %d requests of this connection have no reply yet", errBusy, limits.MaxInFlight)
	case js.replyBytes > limits.MaxUnsent:
		return fmt.Errorf("%w: %d bytes of replies wait for those before them", errBusy, js.replyBytes)
	}
	return nil
}

// accept begins to answer the request that has ended.
func (js *jobs) accept(q *netproto.Request) {
	s := js.session
	j := js.current
	js.current = nil
	if j == nil {
		j = newJob(s, q.Tag)
		j.err = js.check(q.Tag)
	}
	if problem := s.problemOf(q); problem != nil {
		j.err = problem
	}
	s.asks.attachTo(j)
	js.start(j, q)
}

// adopt makes a job of a lookup whose hashes have been looked up: its answer takes long.
func (js *jobs) adopt(q *netproto.Request) {
	s := js.session
	j := newJob(s, q.Tag)
	j.query, s.inline.query = s.inline.query, nil
	s.inline.release()
	s.asks.attachTo(j)
	js.start(j, q)
}

// start gives a job to the workers, unless it is refused, has nothing to do there, or has to wait
// for those before it.
func (js *jobs) start(j *job, q *netproto.Request) {
	s := js.session
	j.q, j.began = q.Clone(), s.conn.began
	if !js.queueReply(j) {
		return
	}
	if j.err == nil && !js.charge(j, j.copiedBytes()) {
		j.err = errNoMemory
	}
	if j.err != nil {
		js.apply(j)
		return
	}
	if j.isBarrier() {
		js.barrier = j
	}
	if js.mustWait(j) {
		js.barrier, js.waiting = j, j
		return
	}
	js.submit(j)
}

// mustWait reports whether a job must wait for those before it: because it changes something, or for memory. It is
// charged the most that it may take. If no others are left to wait for, it fails with errNoMemory.
func (js *jobs) mustWait(j *job) bool {
	running := js.running > 0
	switch {
	case running && operations[j.q.Tag].changes:
		return true
	case js.charge(j, j.copiedBytes()+j.workBytes()):
		return false
	case running:
		return true
	}
	j.err = errNoMemory
	return false
}

// submit gives a job to its workers.
func (js *jobs) submit(j *job) {
	s := js.session
	op := &operations[j.q.Tag]
	if j.err != nil || op.run == nil {
		js.apply(j)
		return
	}
	if j.answerRemembered() {
		js.apply(j)
		return
	}
	if js.ctx == nil {
		js.ctx, js.cancel = context.WithCancel(s.shared.ctx)
	}
	if op.changes { // what was asked before a change is recorded before it
		s.conn.flush(0) // which may close the connection, and js
	}
	kind := computing
	if b := s.shared.backend; b != nil && op.callsStore {
		kind, j.deadline = reading, time.Now().Add(b.Config().Timeout)
		if op.changes {
			kind, j.deadline = writing, time.Now().Add(b.Config().WriteTimeout)
		}
		j.lookup.expected = j.lookup.ask.Expected(monotime.Now())
	}
	js.running++
	js.submittedBytes += j.bytes
	s.shared.workers[kind].Submit(&js.queues[kind], j)
}

// answerRemembered answers a small lookup of blocks that were found a moment ago: an engine asks so at each step for
// a request that it cannot schedule. Two threads need not be woken for it. It returns false for other jobs.
func (j *job) answerRemembered() bool {
	op := &operations[j.q.Tag]
	if !op.lookup || op.inline != overIndex || j.query != nil {
		return false
	}
	j.session.turn.lookSoon()
	answer, ok := j.service.Backend().LookupRemembered(j.lookup.numTokens, j.hashes())
	if ok {
		j.lookup.answer, j.reply = answer, appendHit(j.reply, j.q.Envelope, answer.Hit)
		j.release()
	}
	return ok
}

// Run implements workers.Job: it serves the job and completes it. Jobs that change nothing end with their connection.
func (j *job) Run() {
	js, op := j.session.jobs, &operations[j.q.Tag]
	ctx := js.ctx
	if op.changes {
		ctx = j.session.shared.ctx
	}
	if op.changes || ctx.Err() == nil {
		if j.err = j.checkAuthorized(); j.err == nil {
			j.err = j.runBefore(ctx, op)
		}
	}
	j.release()
	j.session.jobs.complete(j)
}

// runBefore serves the job before its deadline, which ctx has unless the operation is coalesced. A panic is the error
// of the job.
func (j *job) runBefore(ctx context.Context, op *operation) (err error) {
	defer requesterror.Recover(&err)
	if !j.deadline.IsZero() && !op.coalesced {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, j.deadline)
		defer cancel()
	}
	return op.run(ctx, j)
}

// complete returns a job to the event loop. A worker calls it.
func (js *jobs) complete(j *job) {
	s := js.session
	js.mu.Lock()
	defer js.mu.Unlock()
	if s.conn.state() == stateClosed {
		s.shared.pools.move(j.found(), nil)
		js.submittedBytes -= j.bytes
		s.conn.chargeOnly(js.submittedBytes)
		return
	}
	js.completed = append(js.completed, j)
	s.conn.loop.push(s.conn)
}

// applyCompleted answers the jobs that workers have completed, and starts the one that has waited for
// them.
func (js *jobs) applyCompleted() {
	s := js.session
	completed, now := js.takeCompleted(), int64(0)
	if len(completed) > 0 {
		now = monotime.Now()
		s.conn.times.lastActive.Store(now) // IdleTimeout begins now
	}
	defer func() { // of those that a panic has left
		for _, j := range completed {
			s.shared.pools.move(j.found(), nil)
		}
	}()
	for ; len(completed) > 0; completed = completed[1:] {
		js.running--
		completed[0].completed = now
		js.apply(completed[0])
	}
	j := js.waiting
	if j == nil || s.conn.isEnding() {
		return
	}
	if js.waiting = nil; js.mustWait(j) {
		js.waiting = j
		return
	}
	if !j.isBarrier() {
		js.barrier = nil
	}
	js.submit(j)
}

// jobsPerTurn is how many jobs are answered in a turn.
const jobsPerTurn = 64

// takeCompleted returns the next completed jobs. If there are more, the session is woken for them.
func (js *jobs) takeCompleted() []*job {
	s := js.session
	js.mu.Lock()
	defer js.mu.Unlock()
	n := min(len(js.completed), jobsPerTurn)
	completed := js.completed[:n:n]
	for _, j := range completed {
		js.submittedBytes -= j.bytes
	}
	if js.completed = js.completed[n:]; len(js.completed) > 0 {
		s.conn.loop.push(s.conn)
	}
	return completed
}

// apply ends a job that has run or is refused: what it has found is applied to the connection, and it is
// answered.
func (js *jobs) apply(j *job) {
	s := js.session
	if js.barrier == j {
		js.barrier = nil
	}
	if apply := operations[j.q.Tag].apply; j.err == nil && apply != nil {
		j.err = apply(s, j)
	}
	if j.err != nil {
		js.undoSetup(j)
	}
	js.answer(j)
}

// dropCurrent drops the job that is being received.
func (js *jobs) dropCurrent() {
	if j := js.current; j != nil {
		j.release()
		js.current = nil
	}
}

// close ends the jobs of a connection that is closed. Changes that workers have run to their end.
func (js *jobs) close() {
	s := js.session
	js.mu.Lock()
	for _, j := range js.completed {
		s.shared.pools.move(j.found(), nil)
		js.submittedBytes -= j.bytes
	}
	js.completed = nil
	s.conn.chargeOnly(js.submittedBytes)
	js.mu.Unlock()
	if js.cancel != nil {
		js.cancel()
	}
	js.dropCurrent()
	for _, j := range s.asks.jobs {
		s.asks.record(j.lookup.ask)
	}
	s.asks.jobs = nil
	if js.waiting != nil {
		js.waiting.release()
		js.waiting = nil
	}
	js.barrier = nil
	clear(js.last)
	s.shared.inFlight.Add(-s.conn.unanswered.Swap(0))
}

// charge charges a job that has not been answered, as part of what its connection holds. It returns false, and charges
// it as before, if that is more and the connection may not hold it.
func (js *jobs) charge(j *job, bytes int) bool {
	s := js.session
	grown := bytes - j.bytes
	js.bytes += grown
	if grown > 0 && !s.conn.charge() {
		js.bytes -= grown
		return false
	}
	j.bytes = bytes
	return true
}

// held returns the bytes of memory that jobs hold.
func (js *jobs) held() int {
	n := js.bytes
	if js.current != nil && js.current.copied != nil {
		n += cap(js.current.copied.B)
	}
	return n
}
