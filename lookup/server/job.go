package server

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server/internal/workers"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

// One job: what it takes from its request, what it holds, and its reply. jobs.go has its way through the server.

// job is a request that a worker answers. It belongs to the event loop of its connection, and to a
// worker from workers.Pool.Submit to jobs.complete.
type job struct {
	session *session
	q       netproto.Request // a copy, from jobs.start on; before it has its tag alone

	// A pool or auth request after this one changes those of the connection, not these.
	settings   *Settings          // of the listener, when it arrived
	credential *access.Credential // nil for an anonymous peer
	pool       *pool              // that it is about, nil if the connection had none
	service    *lookup.Service    // of the pool

	neededBytes int             // bytes of hashes that can change the answer; no more are copied
	copied      *bufpool.Buffer // those hashes that have arrived, nil if there are none
	query       *lookup.Query   // of a lookup whose hashes have been looked up as they arrived, otherwise nil
	bytes       int             // what it is charged
	began       int64           // when the first byte arrived, in monotime
	completed   int64           // when the event loop took it from workers, in monotime; 0 if none has had it
	deadline    time.Time       // of its calls of a store, zero for none

	lookup   *jobLookup
	setup    *poolSetup // what a pool request has found, nil before
	reply    []byte     // the whole message, unless err is set
	err      error      // why it is refused, nil if it is not
	answered bool       // reply and err are final

	next   *job // the next one with an equal envelope, nil if none
	behind bool // an earlier one with an equal envelope has no reply yet
}

// jobLookup is what a job has for a lookup.
type jobLookup struct {
	numTokens int64
	start     int64         // token at which it begins
	expected  int           // hashes whose blocks the store is likely to have
	answer    lookup.Answer // of a worker
	missing   tokens.Missing
	ask       *tokens.Event // records it, nil if nothing is recorded; the event loop's alone
	askIndex  int           // of the job in asks.jobs, if it has an ask
}

// poolSetup is the pool that a connection is to have.
type poolSetup struct {
	pool  *pool                    // counted as having the connection
	rules *coordinator.Coordinator // that the client has described, nil if it has described none
	asker string                   // see description.Description
}

// newJob returns a job for a request of a session.
func newJob(s *session, tag netproto.Tag) *job {
	parts := new(struct {
		job    job
		lookup jobLookup
	})
	parts.job = job{
		session: s, settings: s.settings, credential: s.credential,
		pool: s.pool, service: s.service, lookup: &parts.lookup,
	}
	parts.job.q.Tag = tag
	return &parts.job
}

// found returns the pool that a pool request has found, nil for any other.
func (j *job) found() *pool {
	if j.setup == nil {
		return nil
	}
	return j.setup.pool
}

// addHashes copies the next hashes. It returns false if no more are needed.
func (j *job) addHashes(hashes []byte) (wanted bool) {
	if j.err != nil {
		return false
	}
	if j.copied == nil {
		j.copied = bufpool.GetFor(j.neededBytes)
	}
	hashes = hashes[:min(len(hashes), j.neededBytes-len(j.copied.B))]
	if len(hashes) > cap(j.copied.B)-len(j.copied.B) {
		// append grows a large array by a quarter, and so copies the hashes of a long prompt
		// six times. Doubling copies them less often.
		j.copied.Grow(min(j.neededBytes-len(j.copied.B), max(len(hashes), len(j.copied.B))))
	}
	j.copied.B = append(j.copied.B, hashes...)
	return len(j.copied.B) < j.neededBytes
}

// hashes returns those that were copied, of a lookup with its start.
func (j *job) hashes() coordinator.Hashes {
	if j.copied == nil {
		return coordinator.Hashes{}.From(j.lookup.start)
	}
	return coordinator.NewHashes(j.copied.B, j.q.HashLen).From(j.lookup.start)
}

// isSmall reports whether the job may use the memory and the workers that larger ones do not use. A
// reset visits the whole pool.
func (j *job) isSmall() bool {
	isReset := j.q.Tag == netproto.TagReset || j.q.Tag == netproto.TagResetRank
	return !isReset && j.query == nil && j.neededBytes <= admission.SmallBytes
}

// takeHashes returns the copied hashes, which the caller must release.
func (j *job) takeHashes() *bufpool.Buffer {
	copied := j.copied
	j.copied = nil
	return copied
}

// release frees what the job has copied. A worker may call it.
func (j *job) release() {
	if j.query != nil {
		j.query.Release()
		j.query = nil
	}
	if j.copied != nil {
		j.copied.Release()
		j.copied = nil
	}
}

// Size implements workers.Job. A job is large if it is not small, or much work for its keys.
func (j *job) Size() workers.Size {
	if !j.isSmall() || j.pool != nil && !j.service.HasFewKeys(j.neededBytes) {
		return workers.Large
	}
	return workers.Small
}

// done sets the reply 01 with further frames, which are encoded.
func (j *job) done(payload []byte) { j.reply = netproto.AppendDone(j.reply, j.q.Envelope, payload) }

// doneJSON sets the reply 01 with v in JSON.
func (j *job) doneJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the reply: %w", err)
	}
	j.done(netproto.AppendFrame(nil, text, false))
	return nil
}

// jobBytes is about what a job takes, apart from what it copies, with its refusal.
const jobBytes = 1 << 10

// copiedBytes returns how many bytes a job holds that is not served yet.
func (j *job) copiedBytes() int {
	p := &j.q.Prompt
	n := jobBytes + len(j.q.Envelope) + len(j.q.Echo) + len(j.q.Description) + len(p.Ranks) + len(p.States)
	n += j.lookup.ask.Bytes()
	if j.copied != nil {
		n += cap(j.copied.B)
	}
	if j.query != nil {
		n += j.query.Held()
	}
	return n
}

// prepare checks the hashes that are announced and sets how many bytes of them are needed.
func (j *job) prepare(q *netproto.Request) (err error) {
	if err := j.pool.checkHashes(q, j.session.conn.limits.Load()); err != nil {
		return err
	}
	n := q.NumHashes
	if operations[q.Tag].lookup {
		j.lookup.start = int64(q.Start)
		if j.lookup.numTokens, n, err = j.service.Needed(q.NumTokens, q.Unaligned, j.lookup.start, q.NumHashes); err != nil {
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

// isBarrier reports whether what follows a job is read when it has ended.
func (j *job) isBarrier() bool { return operations[j.q.Tag].changes || j.query != nil }

// checkNeeded refuses a job that needs more bytes of hashes than it will ever be given.
func (s *shared) checkNeeded(bytes int) error {
	if limit := s.admission.MaxRequest(); bytes > admission.SmallBytes && int64(bytes) > limit {
		text := fmt.Sprintf("%d bytes of hashes, this server takes %d at a time (see limits.max_memory)", bytes, limit)
		return &limitError{text: text, limit: limit}
	}
	return nil
}

// workBytes returns how many more bytes a job takes at most, until its reply is sent: bits of its hashes, and the
// reply.
func (j *job) workBytes() (n int) {
	op := &operations[j.q.Tag]
	if op.lookup && j.copied != nil {
		n = bitBytes * len(j.pool.blockSizes) * (len(j.copied.B)/j.q.HashLen/64 + 1)
	}
	if op.replyBytes != nil {
		n += op.replyBytes(j)
	}
	return n
}

// bitBytes is how many bytes the rules take for 64 hashes in a group: three bits a hash over a store, and over memory
// two and what an explanation keeps of ranks.
const bitBytes = 3 * 8

// doneIf sets the reply 01 if err is nil, and returns err.
func (j *job) doneIf(err error) error {
	if err == nil {
		j.done(nil)
	}
	return err
}
