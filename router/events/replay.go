package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// Errors of a replay.
var (
	// errReplay: an answer of the replay socket is malformed.
	errReplay = errors.New("malformed answer of the replay socket")
	// errReplayChanged: during the replay the publisher restarted, or dropped batches that were
	// still to be replayed.
	errReplayChanged = errors.New("the publisher changed during a replay")
	// errReplaySlow: the replay socket did not answer in time, or stopped.
	errReplaySlow = errors.New("the replay socket does not answer")
)

const (
	// endOfReplay is the sequence number of the message that ends an answer.
	endOfReplay = ^uint64(0)
	// maxEnvelope is what a message may have besides its payload: the topic and the sequence
	// number. A topic is a few words.
	maxEnvelope = 4 << 10
)

// A replay has a budget of time in which it may wait for the socket. It begins with Timeout, which is
// also the most it can have. Each batch adds Timeout/replayShare for each begun replayStep of its
// bytes. So a replay of any length finishes if 100 batches of 64 KiB come per Timeout, and a publisher
// cannot prolong one with a batch per Timeout. The time that each takes does not count.
const (
	replayShare = 100
	replayStep  = 64 << 10
)

// replayPause is how long an answer that has begun may pause: the socket sends one batch after the
// other, and one that has dropped the end says nothing more. Asking again for nothing costs little.
const replayPause = 250 * time.Millisecond

// How often a replay asks again: replayAsks times, and once more for each replayBatches. The
// sockets that drop messages send 1,000 before they do, so nothing was dropped from an answer of less
// than replayBatches. What is missing after that counts as lost.
const (
	replayAsks    = 16
	replayBatches = 100
)

// replay asks the replay socket of a publisher for the batches from a sequence number on, and calls
// each for them, in ascending order. The payload is borrowed until each returns. Numbers that
// are skipped are ones that the publisher does not have. It fails with the error of each, of
// ctx or of the connection, or with one of those above; the batches before the error are right.
//
// The sockets of vLLM before 0.33 and of SGLang queue 1,000 messages and drop the others, the
// end of the answer too, if we read more slowly than they send. So at a skipped number, and if
// the answer stops without an end, replay asks again on a new connection. It also does after an answer
// of replayBatches or more: its last batches may have been dropped and its end not. Numbers that are
// skipped at the beginning of an answer are lost for good.
func replay(
	ctx context.Context, cfg *Config, memory *batchMemory, cpu *cpushare.Claim, from uint64, each func(seq uint64, payload []byte) error,
) error {
	network, address, err := zmtp.DialAddress(cfg.Replay)
	if err != nil {
		return err
	}
	r := replayer{network: network, address: address, next: from, each: each, timeout: cfg.Timeout, maxPayload: cfg.MaxPayload,
		budget: cfg.Timeout, memory: memory, cpu: cpu}
	for {
		switch again, err := r.ask(ctx); {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case !again:
			return nil
		case !r.mayAsk():
			return fmt.Errorf("%w: its answers stop without an end (%s)", errReplaySlow, cfg.Replay)
		}
	}
}

// replayer is the state of one replay over all its connections.
type replayer struct {
	network, address string
	timeout          time.Duration
	maxPayload       int
	each             func(seq uint64, payload []byte) error
	memory           *batchMemory
	cpu              *cpushare.Claim

	next   uint64        // sequence number that is asked for
	budget time.Duration // that may still be waited for the socket

	asks, batches int
	last          uint64 // hash of the payload of batch next-1, if batches > 0
}

// ask makes one request, and reports whether batches may be missing in the answer. If there was a batch before, it asks
// from the last one: another publisher may be there now, or this one may have lost what lies between.
func (r *replayer) ask(ctx context.Context) (again bool, err error) {
	r.asks++
	conn, err := zmtp.Dial(ctx, r.network, r.address, zmtp.Config{
		SocketType: zmtp.DEALER, MaxMessage: r.maxPayload + maxEnvelope, Timeout: r.timeout, Reserve: r.memory.reserve, CPU: r.cpu,
	})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	from, confirm, before := r.next, r.batches > 0, r.batches
	if confirm {
		from--
	}
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, err
	}
	for {
		progress := r.batches > before
		seq, payload, err := r.receive(conn, progress)
		switch {
		case errors.Is(err, zmtp.ErrNoMessage) && progress:
			return true, nil
		case errors.Is(err, zmtp.ErrNoMessage):
			return false, fmt.Errorf("%w: %v without a batch or the end of the answer (%s)", errReplaySlow, r.timeout, r.address)
		case err != nil:
			return false, err
		case confirm && (payload == nil || seq != from || hashPayload(payload) != r.last):
			return false, fmt.Errorf("%w: batch %d is not what it was (%s)", errReplayChanged, from, r.address)
		case confirm:
			confirm = false
			continue
		case payload == nil:
			return r.batches-before >= replayBatches, nil
		case seq < r.next:
			return false, fmt.Errorf("%w: sequence number %d, but %d was expected", errReplay, seq, r.next)
		case seq > r.next && progress && r.mayAsk():
			return true, nil
		}
		if err := r.each(seq, payload); err != nil {
			return false, err
		}
		r.next, r.last, r.batches = seq+1, hashPayload(payload), r.batches+1
	}
}

// mayAsk says whether another request may be made.
func (r *replayer) mayAsk() bool { return r.asks < replayAsks+r.batches/replayBatches }

// receive returns the next batch of an answer, or a nil payload at its end. It fails with
// ErrNoMessage if the socket does not go on.
func (r *replayer) receive(conn *zmtp.Conn, progress bool) (seq uint64, payload []byte, err error) {
	limit := r.timeout
	if progress {
		limit = min(r.timeout, replayPause)
	}
	if r.budget <= 0 {
		return 0, nil, fmt.Errorf("%w: too slow, next is batch %d (%s)", errReplaySlow, r.next, r.address)
	}
	r.memory.free() // of the batch before
	start, waited := time.Now(), r.memory.waited
	frames, err := conn.ReceiveWithin(limit)
	r.budget -= time.Since(start) - (r.memory.waited - waited)
	if err != nil {
		return 0, nil, err
	}
	seq, payload, err = parseReplay(frames)
	if err != nil {
		return 0, nil, err
	}
	r.budget += r.timeout / replayShare * time.Duration(1+len(payload)/replayStep)
	r.budget = min(r.budget, r.timeout)
	return seq, payload, nil
}

// parseReplay parses a message of an answer: an empty frame, the topic (vLLM from 0.26 on, and
// SGLang), the sequence number and the payload. The payload is nil at the end of the answer,
// which has the number endOfReplay.
func parseReplay(frames [][]byte) (seq uint64, payload []byte, err error) {
	n := len(frames)
	if n != 3 && n != 4 || len(frames[0]) != 0 || len(frames[n-2]) != 8 {
		return 0, nil, fmt.Errorf("%w: frames of %v bytes", errReplay, frameSizes(frames))
	}
	seq, payload = binary.BigEndian.Uint64(frames[n-2]), frames[n-1]
	switch {
	case seq != endOfReplay && len(payload) > 0:
		return seq, payload, nil
	case seq == endOfReplay && len(payload) == 0 && len(frames[n-3]) == 0:
		return seq, nil, nil
	}
	return 0, nil, fmt.Errorf("%w: sequence number %d with a payload of %d bytes", errReplay, seq, len(payload))
}

func frameSizes(frames [][]byte) []int {
	sizes := make([]int, len(frames))
	for i, f := range frames {
		sizes[i] = len(f)
	}
	return sizes
}
