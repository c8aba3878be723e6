package events

import (
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/hitline/hitline/router/events/internal/zmtp"
)

var (
	// errSequence is the error of a publisher that numbers its batches in a way that none does.
	errSequence = errors.New("impossible sequence number")
	// errOtherPublisher is the error of a replay that does not go on where its source was.
	errOtherPublisher = errors.New("the batches are others than before, so all are read again")
	// errRank is the error of batches of several ranks under one sequence: several publishers behind
	// one endpoint, or the replay socket of another one.
	errRank = errors.New("batches of several data-parallel ranks; each rank is a source of its own")
	// errReplayOther is the error of a live batch that is not the one that a replay just brought.
	errReplayOther = errors.New("the replay socket has other batches than the publisher sends")
)

// numRecent is how many batches a tracker can recognize: 6 KiB. Live batches that a replay has
// brought already are compared with them.
const numRecent = 256

// tracker is the sequence logic of one source: it decides which batches are applied, and when
// the source is stale and complete. It has no sockets and no clock. Not safe for concurrent use.
//
// Its phases, and what changes them:
//
//	phase     stale  input                               what follows
//	apart     yes    connect, no replay socket           lost if a batch was applied; live
//	                 connect                             replay
//	replay    yes    the replay ends                     live
//	                 the replay fails                    apart
//	live      no     batch next                          applied
//	                 batch before next, known and equal  skipped
//	                 batch before next, known and not    restart
//	                   equal, or unknown and not after
//	                   the one before it
//	                 batch before next, else unknown     skipped: a replay has brought it
//	                 batch after next                    gap: replay, or lost if there is no
//	                                                     replay socket or it did not help
//	                 no batch for a while                replay, without becoming stale (check)
//	any              disconnect                          apart
//	any              batch that cannot be decoded or     lost, apart
//	                   applied
//	any              unknown event                       lost
//
// A restart clears all blocks. If the batch that shows it is batch 0, or if there is no replay
// socket, the batch is applied. Otherwise a replay follows. A replay begins with the last batch
// that was applied, or with 0:
//
//	asked from  first batch          what follows
//	last        last, equal          the same publisher: the rest is applied
//	last        last, not equal,     restart, apart
//	            or an earlier one
//	last        a later one          lost (the buffer has rotated), apart
//	last        none                 restart, apart
//	0           0                    complete: all that was published
//	0           a later one          incomplete: what was published since
//	0           none                 complete: nothing was published
//	            later, a number      lost, the rest is applied
//	            is missing
//
// After a restart or a loss that ends in "apart", the next replay begins with 0, on a new connection:
// the old one may lead to the old publisher.
//
// Lost batches may have removed any block. So a loss clears all blocks and makes the source
// incomplete. Batch 0 and an event that clears all make it complete again.
//
// Until publishers send ids, a restart is noticed by the connection, which breaks, or by a number
// that goes back. So behind a proxy that keeps its connections, one is not noticed if exactly the
// batches before next are lost.
type tracker struct {
	*applier
	decoder   Decoder
	memory    *batchMemory // that decoding takes beyond that of the payload; nil: no bound
	hasReplay bool
	observe   func(seq uint64, payload []byte) // Config.Observe, may be nil

	checkHash func(*FirstBlock) (more bool) // Config.CheckFirst, may be nil
	checked   bool                          // it wants no more
	cleared   func()                        // Config.Cleared, may be nil
	first     FirstBlock                    // reused

	// hasLast says that a batch was applied since the last restart or loss of the sequence. Its
	// number is next-1.
	hasLast      bool
	next         uint64
	acceptAnySeq bool                   // any number may come next
	recent       [numRecent]recentBatch // by number modulo numRecent

	nextLive uint64 // after the live batches on this connection, 0 before the first

	replayFirst bool // the replay has brought no batch yet

	wantRank *int // Config.Rank

	rank int // of the batches since the last restart or loss of the sequence, -1 if not said

	// publish is called before the Holder becomes stale or loses blocks that the engine may have, so that who asks the Holder
	// then finds why.
	publish func(*Status)

	explained int64 // blocks that the Holder had dropped when the reason last said so, or a loss had cleared all
}

// recentBatch is a batch that was applied.
type recentBatch struct {
	Seq   uint64 `json:"seq"`
	Hash  uint64 `json:"hash"` // of the payload; the time in it makes it unique
	valid bool
}

// hashPayload returns the hash by which payloads are compared.
func hashPayload(payload []byte) uint64 { return xxh3.Hash(payload) }

func newTracker(holder Holder, cfg *Config) *tracker {
	stats := &Status{Name: cfg.Name, Endpoint: cfg.Endpoint, State: StateConnecting, Stale: true}
	return &tracker{
		applier: newApplier(holder, cfg, stats), hasReplay: cfg.Replay != "",
		observe: cfg.Observe, checkHash: cfg.CheckFirst, cleared: cfg.Cleared, acceptAnySeq: true, wantRank: cfg.Rank, rank: -1, publish: func(*Status) {},
	}
}

// setStale tells the Holder if it changes.
func (t *tracker) setStale(stale bool) {
	if t.stats.Stale != stale {
		if t.stats.Stale = stale; stale {
			t.publish(t.stats)
		}
		t.holder.SetStale(stale)
	}
}

// connected begins a connection. It reports whether a replay is to be asked for.
func (t *tracker) connected() (replay bool) {
	t.nextLive = 0
	t.stats.Connects++
	if t.hasReplay {
		return true
	}
	if t.hasLast {
		t.lose("the connection was lost, and there is no replay socket for what was published meanwhile")
		t.restartSequence()
	} else {
		t.reason = "there is no replay socket for what was published before"
	}
	t.stats.State = StateLive
	t.setStale(false)
	return false
}

// markStale makes the source stale, at the end of a connection or at a gap, until it has caught up: it may
// have missed events.
func (t *tracker) markStale(reason string) {
	t.reason = reason
	t.setStale(true)
}

// lose counts lost batches, and clears what they may have removed.
func (t *tracker) lose(reason string) {
	t.stats.Lost++
	t.dropAll(reason)
}

// loseUpTo counts what lies between the last batch and batch seq as lost.
func (t *tracker) loseUpTo(seq uint64) {
	why := "there is no replay socket"
	if t.hasReplay {
		why = "the replay socket does not have what lies between"
	}
	t.lose(fmt.Sprintf("batch %d came, not %d, and %s", seq, t.next, why))
}

// restart clears what an earlier publisher held.
func (t *tracker) restart(reason string) {
	t.stats.Restarts++
	t.dropAll(reason)
	t.restartSequence()
}

// dropAll clears all blocks. reason is in the status, for people.
func (t *tracker) dropAll(reason string) {
	t.reason, t.stats.LastError, t.stats.Complete = reason, reason, false
	t.publish(t.stats)
	t.clear()
	t.explained = t.stats.Dropped
}

// clear removes all blocks. First blocks are checked again.
func (t *tracker) clear() {
	if t.checked = false; t.cleared != nil {
		t.cleared()
	}
	t.applier.clear()
}

// restartSequence drops what is known of the batches that were applied. The next may have any number.
func (t *tracker) restartSequence() {
	t.hasLast, t.acceptAnySeq, t.next, t.nextLive, t.rank = false, true, 0, 0, -1
	clear(t.recent[:])
}

// compare compares a batch with the one of its number that was applied: known is false if that
// is too long ago.
func (t *tracker) compare(seq uint64, payload []byte) (equal, known bool) {
	r := &t.recent[seq%numRecent]
	if !r.valid || r.Seq != seq {
		return false, false
	}
	return r.Hash == hashPayload(payload), true
}

// live handles a batch of the subscription. It is applied, or skipped as it was applied before, or a replay is needed
// first. Then live is called again, with afterReplay: then none is needed. An error is one of the batch, which is lost then, or of its
// number.
func (t *tracker) live(seq uint64, payload []byte, afterReplay bool) (needReplay bool, err error) {
	if seq == math.MaxUint64 {
		return false, fmt.Errorf("%w: it marks the end of a replay", errSequence)
	}
	if t.hasLast && seq < t.next {
		equal, known := t.compare(seq, payload)
		if equal || !known && seq >= t.nextLive {
			t.nextLive = max(t.nextLive, seq+1)
			return false, nil
		}
		t.restart(fmt.Sprintf("the engine was started again: batch %d is another one", seq))
		switch {
		case seq == 0 || !t.hasReplay:
		case afterReplay:
			t.setStale(true)
			return false, fmt.Errorf("%w: batch %d", errReplayOther, seq)
		default:
			t.setStale(true)
			return true, nil
		}
	}
	if seq > t.next && !t.acceptAnySeq {
		if !afterReplay {
			t.stats.Gaps++
		}
		if t.hasReplay && !afterReplay {
			t.markStale(fmt.Sprintf("batch %d came, not %d", seq, t.next))
			return true, nil
		}
		t.loseUpTo(seq)
	}
	if t.acceptAnySeq && seq > 0 {
		t.reason = fmt.Sprintf("the first batch that came is %d", seq)
	}
	t.nextLive = max(t.nextLive, seq+1)
	return false, t.apply(seq, payload)
}

// beginReplay returns the number to ask from: that of the last batch, or 0.
func (t *tracker) beginReplay() uint64 {
	t.stats.State = StateReplaying
	t.replayFirst = true
	if t.hasLast {
		return t.next - 1
	}
	return 0
}

// replayed handles a batch of a replay. After an error, which is one of the batch or of its number,
// the replay has failed.
func (t *tracker) replayed(seq uint64, payload []byte) error {
	if seq == math.MaxUint64 {
		return fmt.Errorf("%w: it marks the end of a replay", errSequence)
	}
	first := t.replayFirst
	t.replayFirst = false
	switch {
	case first && t.hasLast:
		return t.checkFirst(seq, payload)
	case first:
		t.stats.Complete = false // apply sets it if this is batch 0
		t.reason = fmt.Sprintf("the replay begins with batch %d", seq)
	case seq < t.next:
		return fmt.Errorf("%w: a replay has batch %d after %d", errSequence, seq, t.next-1)
	case seq > t.next:
		t.loseUpTo(seq)
	}
	return t.apply(seq, payload)
}

// checkFirst checks the first batch of a replay that begins with the last batch that was applied: it must
// be that batch.
func (t *tracker) checkFirst(seq uint64, payload []byte) error {
	last := t.next - 1
	equal, _ := t.compare(seq, payload)
	if seq == last && equal {
		return nil
	}
	if seq <= last {
		t.restart(fmt.Sprintf("the engine was started again: batch %d is another one", last))
	} else {
		t.lose(fmt.Sprintf("the replay socket has batch %d, but not %d", seq, last))
		t.restartSequence()
	}
	t.setStale(true)
	return fmt.Errorf("%w: %s", errOtherPublisher, t.reason)
}

// endReplay ends a replay that has come to its end. After an error it has failed.
func (t *tracker) endReplay() error {
	if t.replayFirst {
		if t.hasLast {
			t.restart(fmt.Sprintf("the engine was started again: it has no batch %d", t.next-1))
			t.setStale(true)
			return fmt.Errorf("%w: %s", errOtherPublisher, t.reason)
		}
		t.acceptAnySeq, t.stats.Complete = false, true // nothing was published yet
	}
	t.stats.State = StateLive
	t.setStale(false)
	return nil
}

// apply applies the events of a batch, which becomes the last one even if it fails: it would
// fail again.
func (t *tracker) apply(seq uint64, payload []byte) error {
	if t.observe != nil {
		t.observe(seq, payload)
	}
	t.stats.Batches++
	if seq == 0 {
		t.stats.Complete = true
	}
	t.hasLast, t.acceptAnySeq, t.next = true, false, seq+1
	t.recent[seq%numRecent] = recentBatch{Seq: seq, Hash: hashPayload(payload), valid: true}
	batch, err := t.decode(payload)
	if err == nil {
		err = t.checkRank(batch.Rank)
	}
	if err == nil {
		err = t.flush()
	}
	if err != nil {
		t.lose(fmt.Sprintf("batch %d: %v", seq, err))
		return fmt.Errorf("batch %d: %w", seq, err)
	}
	return nil
}

// decode decodes a batch and applies its events.
func (t *tracker) decode(payload []byte) (Batch, error) {
	if t.memory != nil {
		t.memory.allowed = max(int64(len(payload)), zmtp.SmallMessage)
		defer t.memory.free()
	}
	return t.decoder.Decode(payload, t.event)
}

// checkRank compares the rank of a batch with that of the batches before. A change is the only sign
// that the numbers of two publishers, which both count from 0, come as one sequence.
func (t *tracker) checkRank(rank int) error {
	before := t.rank
	if t.rank = rank; rank != before {
		t.stats.BatchRank = nil
		if rank >= 0 {
			t.stats.BatchRank = &rank
		}
	}
	if before >= 0 && rank >= 0 && rank != before {
		return fmt.Errorf("%w: %d and %d", errRank, before, rank)
	}
	return nil
}

// event applies one event of a batch.
func (t *tracker) event(e *Event) error {
	if err := t.stopped(); err != nil {
		return err
	}
	switch e.Kind {
	case KindStored:
		if t.checkHash != nil && !t.checked && e.ReadFirstBlock(&t.first) {
			t.checked = !t.checkHash(&t.first)
		}
		return t.store(e)
	case KindRemoved:
		return t.remove(e)
	case KindCleared:
		t.stats.Cleared++
		t.clear()
		t.stats.Complete = true
	case KindTierCleared:
		t.stats.Cleared++
		if t.copies.groupTiers.hasOther(e.Tier.Medium) {
			return t.clearTier(&e.Tier)
		}
		t.clear() // which is quick
	default: // it may remove blocks
		t.stats.Unknown++
		t.lose("an event of an unknown type, which may have removed any block")
	}
	return nil
}

// status brings the state up to date and returns it. Why a source is stale matters more than what was dropped, which is the
// reason once it is live.
func (t *tracker) status() *Status {
	t.countDropped()
	if t.stats.Dropped > t.explained && !t.stats.Stale {
		t.explained = t.stats.Dropped
		t.reason = fmt.Sprintf("max_bytes is used, and the engine has the most of it: %d blocks were dropped so far", t.stats.Dropped)
	}
	t.stats.NextSeq = t.next
	t.stats.Blocks = int64(t.holder.Len())
	return t.stats
}

// warning says what the configuration, or its bounds, likely get wrong of what the source says. It is empty if nothing.
func (t *tracker) warning() string {
	switch {
	case t.leftOut != nil:
		return t.leftOut.Error()
	case t.wantRank != nil && t.rank >= 0 && t.rank != *t.wantRank:
		return fmt.Sprintf("the batches are of data-parallel rank %d, and the source of rank %d; check dp_rank and the ports", t.rank, *t.wantRank)
	case t.stats.Unheld > 0 && t.stats.Stored == 0:
		return fmt.Sprintf("nothing counts: all blocks that were stored are in media such as %.32q, of which no event says when they go", t.unheld)
	}
	return ""
}
