package server

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// newJob returns a job for a request.
func (s *session) newJob(q *netproto.Request) *job {
	return &job{session: s, tag: q.Tag, settings: s.settings, credential: s.credential, pool: s.pool, service: s.service}
}

// beginJob begins a job that has hashes. It returns false if none of them is needed.
func (s *session) beginJob(q *netproto.Request) (wanted bool) {
	j := s.newJob(q)
	s.jobs.current = j
	if j.err = s.checkJob(q.Tag); j.err == nil {
		j.err = j.prepare(q)
	}
	return j.err == nil && j.neededBytes > 0
}

// checkJob returns an error if a job needs a pool and the connection has none, or if the connection
// has as many jobs as it may have.
func (s *session) checkJob(tag netproto.Tag) error {
	limits := s.conn.limits.Load()
	switch {
	case s.pool == nil && !operations[tag].noPool:
		return errNoPool
	case int(s.conn.unanswered.Load()) >= limits.MaxInFlight:
		return fmt.Errorf("%w: %d requests of this connection have no reply yet", errBusy, limits.MaxInFlight)
	case s.jobs.replyBytes > limits.MaxUnsent:
		return fmt.Errorf("%w: %d bytes of replies wait for those before them", errBusy, s.jobs.replyBytes)
	}
	return nil
}

// prepare checks the hashes that are announced and sets how many bytes of them are needed.
func (j *job) prepare(q *netproto.Request) (err error) {
	if err := j.session.checkHashes(q); err != nil {
		return err
	}
	n := q.NumHashes
	if operations[q.Tag].lookup {
		j.start = int64(q.Start)
		if j.numTokens, n, err = j.service.Needed(q.NumTokens, q.Unaligned, j.start, q.NumHashes); err != nil {
			return err
		}
	}
	j.neededBytes = n * q.HashLen
	if err := j.session.shared.checkNeeded(j.neededBytes); err != nil {
		return err
	}
	s := j.session
	only := s.conn.unanswered.Load() == 0 && s.conn.unsent.bytes.Load() == 0 && j.isSmall()
	if !only && !s.conn.fits(j.neededBytes) { // none of them need be copied
		return errNoMemory
	}
	return nil
}

// acceptJob begins to answer the request that has ended.
func (s *session) acceptJob(q *netproto.Request) {
	j := s.jobs.current
	s.jobs.current = nil
	if j == nil {
		j = s.newJob(q)
		j.err = s.checkJob(q.Tag)
	}
	if problem := s.problemOf(q); problem != nil {
		j.err = problem
	}
	s.setAsk(j)
	s.startJob(j, q)
}

// finishAsJob makes a job of a lookup whose hashes have been looked up: its answer takes long.
func (s *session) finishAsJob(q *netproto.Request) {
	j := s.newJob(q)
	j.query, s.inline.query = s.inline.query, nil
	s.inline.release()
	s.setAsk(j)
	s.startJob(j, q)
}

// startJob gives a job to the workers, unless it is refused, has nothing to do there, or has to wait
// for those before it.
func (s *session) startJob(j *job, q *netproto.Request) {
	j.q, j.began = q.Clone(), s.conn.began
	if !s.queueReply(j) {
		return
	}
	if j.err == nil && !s.charge(j, j.copiedBytes()) {
		j.err = errNoMemory
	}
	if j.err != nil {
		s.applyJob(j)
		return
	}
	if j.isBarrier() {
		s.jobs.barrier = j
	}
	if s.mustWait(j) {
		s.jobs.barrier, s.jobs.waiting = j, j
		return
	}
	s.submit(j)
}

// isBarrier reports whether what follows a job is read when it has ended.
func (j *job) isBarrier() bool { return operations[j.tag].changes || j.query != nil }

// mustWait reports whether a job must wait for those before it: because it changes something, or for memory. It is charged the
// most that it may take. If no others are left to wait for, it fails with errNoMemory.
func (s *session) mustWait(j *job) bool {
	running := s.jobs.running > 0
	switch {
	case running && operations[j.tag].changes:
		return true
	case s.charge(j, j.copiedBytes()+j.workBytes()):
		return false
	case running:
		return true
	}
	j.err = errNoMemory
	return false
}

// submit gives a job to its workers.
func (s *session) submit(j *job) {
	op := &operations[j.tag]
	if j.err != nil || op.run == nil {
		s.applyJob(j)
		return
	}
	if j.answerKnown() {
		s.applyJob(j)
		return
	}
	js := &s.jobs
	if js.ctx == nil {
		js.ctx, js.cancel = context.WithCancel(s.shared.ctx)
	}
	kind := computing
	if b := s.shared.backend; b != nil && op.callsStore {
		kind, j.deadline = reading, time.Now().Add(b.Config().Timeout)
		if op.changes {
			kind, j.deadline = writing, time.Now().Add(b.Config().WriteTimeout)
		}
	}
	js.running++
	js.submitted += j.bytes
	s.shared.workers[kind].submit(&js.queues[kind], j)
}

// answerKnown answers a small lookup of blocks that were found a moment ago: an engine asks so at each step for
// a request that it cannot schedule. Two threads need not be woken for it. It returns false for other jobs.
func (j *job) answerKnown() bool {
	op := &operations[j.tag]
	if !op.lookup || op.inline != overMemory || j.query != nil || !j.isSmall() {
		return false
	}
	j.session.turn.lookSoon()
	answer, ok := j.service.LookupKnown(j.numTokens, j.hashes())
	if ok {
		j.isHit, j.answer, j.reply = true, answer, appendHit(j.reply, j.q.Envelope, answer.Hit)
		j.release()
	}
	return ok
}

// run serves the job and completes it. A worker calls it. Jobs that change nothing end with their
// connection.
func (j *job) run() {
	js, op := &j.session.jobs, &operations[j.tag]
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
	j.session.complete(j)
}

// runBefore serves the job before its deadline. A panic is the error of the job.
func (j *job) runBefore(ctx context.Context, op *operation) (err error) {
	defer requesterror.Recover(&err)
	if !j.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, j.deadline)
		defer cancel()
	}
	return op.run(ctx, j)
}

// complete returns a job to the event loop. A worker calls it.
func (s *session) complete(j *job) {
	js := &s.jobs
	js.mu.Lock()
	defer js.mu.Unlock()
	if s.conn.state() == stateClosed {
		s.shared.pools.move(j.found, nil)
		js.submitted -= j.bytes
		s.conn.holdOnly(js.submitted)
		return
	}
	js.completed = append(js.completed, j)
	s.conn.loop.push(s.conn)
}

// finishJobs answers the jobs that workers have completed, and starts the one that has waited for
// them.
func (s *session) finishJobs() {
	js := &s.jobs
	completed, now := s.takeCompleted(), int64(0)
	if len(completed) > 0 {
		now = monotime.Now()
		s.conn.times.lastActive.Store(now) // IdleTimeout begins now
	}
	defer func() { // of those that a panic has left
		for _, j := range completed {
			s.shared.pools.move(j.found, nil)
		}
	}()
	for ; len(completed) > 0; completed = completed[1:] {
		js.running--
		completed[0].completed = now
		s.applyJob(completed[0])
	}
	j := js.waiting
	if j == nil || s.conn.isEnding() {
		return
	}
	if js.waiting = nil; s.mustWait(j) {
		js.waiting = j
		return
	}
	if !j.isBarrier() {
		s.jobs.barrier = nil
	}
	s.submit(j)
}

// jobsPerTurn is how many jobs are answered in a turn.
const jobsPerTurn = 64

// takeCompleted returns the next completed jobs. If there are more, the session is woken for them.
func (s *session) takeCompleted() []*job {
	js := &s.jobs
	js.mu.Lock()
	defer js.mu.Unlock()
	n := min(len(js.completed), jobsPerTurn)
	completed := js.completed[:n:n]
	for _, j := range completed {
		js.submitted -= j.bytes
	}
	if js.completed = js.completed[n:]; len(js.completed) > 0 {
		s.conn.loop.push(s.conn)
	}
	return completed
}

// applyJob ends a job that has run or is refused: what it has found is applied to the connection, and it is
// answered.
func (s *session) applyJob(j *job) {
	if s.jobs.barrier == j {
		s.jobs.barrier = nil
	}
	if apply := operations[j.tag].apply; j.err == nil && apply != nil {
		j.err = apply(s, j)
	}
	if j.err != nil {
		s.undoSetup(j)
	}
	s.finish(j)
}

// dropCurrent drops the job that is being received.
func (s *session) dropCurrent() {
	if j := s.jobs.current; j != nil {
		j.release()
		s.jobs.current = nil
	}
}

// closeJobs ends the jobs of a connection that is closed. Changes that workers have run to their end.
func (s *session) closeJobs() {
	js := &s.jobs
	js.mu.Lock()
	for _, j := range js.completed {
		s.shared.pools.move(j.found, nil)
		js.submitted -= j.bytes
	}
	js.completed = nil
	s.conn.holdOnly(js.submitted)
	js.mu.Unlock()
	if js.cancel != nil {
		js.cancel()
	}
	s.dropCurrent()
	for _, j := range s.asks.jobs {
		s.recordNow(j.ask)
	}
	s.asks.jobs = nil
	if js.waiting != nil {
		js.waiting.release()
		js.waiting = nil
	}
	s.jobs.barrier = nil
	clear(js.last)
	s.shared.inFlight.Add(-s.conn.unanswered.Swap(0))
}

// checkNeeded refuses a job that needs more bytes of hashes than it will ever be given.
func (s *shared) checkNeeded(bytes int) error {
	if limit := s.admission.MaxRequest(); bytes > admission.SmallBytes && int64(bytes) > limit {
		return &limitError{text: fmt.Sprintf("%d bytes of hashes, this server takes %d at a time (see limits.max_memory)", bytes, limit), limit: limit}
	}
	return nil
}
