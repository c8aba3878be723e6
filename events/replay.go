package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/events/internal/zmtp"
)

// Errors of a replay.
var (
	// ErrReplay: an answer of the replay socket is malformed.
	ErrReplay = errors.New("events: malformed answer of the replay socket")
	// ErrReplaySlow: the replay socket did not answer in time, or stopped.
	ErrReplaySlow = errors.New("events: the replay socket does not answer")
)

const (
	// endOfReplay is the sequence number of the message that ends an answer.
	endOfReplay = ^uint64(0)
	// maxEnvelope is what a message may have beside its payload: the topic and the sequence
	// number. A topic is a few words.
	maxEnvelope = 4 << 10
)

// The time that a replay may wait for the socket, beside the time that each takes: Timeout, and
// a share of it for each batch and for each replayStep of a batch's bytes. So a replay
// of any length can finish, at 100 batches or 6 MiB per Timeout at least, and a publisher cannot
// hold it with one batch per Timeout.
const (
	replayShare = 100
	replayStep  = 64 << 10
)

// How often a replay asks again: replayAsks times, and once more for each replayBatches. The
// sockets that drop messages send 1,000 before they do. What is missing then is taken for lost.
const (
	replayAsks    = 16
	replayBatches = 100
)

// replay asks a publisher's replay socket for the batches from a sequence number on, and calls
// each for them, in ascending order. The payload is borrowed until each returns. Numbers that
// are missing are ones that the publisher does not have (any more).
//
// The socket of vLLM before 0.33 and of SGLang queues 1,000 messages and drops the others, the
// end of the answer too, if we read slower than it sends. So at a missing number, and if the
// answer stops without an end, replay asks again on a new connection. What the
// first message of an answer skips is not there.
func replay(ctx context.Context, endpoint string, from uint64, cfg Config, each func(seq uint64, payload []byte) error) error {
	network, address, err := zmtp.DialAddress(endpoint)
	if err != nil {
		return err
	}
	r := replayer{network: network, address: address, next: from, each: each, timeout: cfg.Timeout, maxPayload: cfg.MaxPayload}
	if r.timeout == 0 {
		r.timeout = DefaultTimeout
	}
	if r.maxPayload == 0 {
		r.maxPayload = DefaultMaxPayload
	}
	r.left = r.timeout
	for {
		progress, again, err := r.ask(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case !again:
			return nil
		case !progress || !r.mayAsk():
			return fmt.Errorf("%w: %v without a batch or the end of the answer (%s)", ErrReplaySlow, r.timeout, endpoint)
		}
	}
}

// replayer is the state of one replay over all its connections.
type replayer struct {
	network, address string
	timeout          time.Duration
	maxPayload       int
	each             func(seq uint64, payload []byte) error

	next uint64        // sequence number that is asked for
	left time.Duration // that may be waited for the socket

	asks, batches int
}

// ask makes one request. progress says whether each was called, again whether batches may be missing.
func (r *replayer) ask(ctx context.Context) (progress, again bool, err error) {
	r.asks++
	conn, err := zmtp.Dial(ctx, r.network, r.address, zmtp.Config{
		SocketType: zmtp.DEALER, MaxMessage: r.maxPayload + maxEnvelope, Timeout: r.timeout,
	})
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, r.next)); err != nil {
		return false, false, err
	}
	for {
		seq, payload, err := r.receive(conn, progress)
		switch {
		case errors.Is(err, zmtp.ErrNoMessage):
			return progress, true, nil
		case err != nil:
			return progress, false, err
		case payload == nil:
			return progress, false, nil
		case seq < r.next:
			return progress, false, fmt.Errorf("%w: sequence number %d, but %d was expected", ErrReplay, seq, r.next)
		case seq > r.next && progress && r.mayAsk():
			return progress, true, nil
		}
		if err := r.each(seq, payload); err != nil {
			return progress, false, err
		}
		progress, r.next = true, seq+1
		r.batches++
	}
}

// mayAsk says whether another request may be made.
func (r *replayer) mayAsk() bool { return r.asks < replayAsks+r.batches/replayBatches }

// receive returns the next batch of an answer, or a nil payload at its end. It fails with
// ErrNoMessage if the socket does not go on.
func (r *replayer) receive(conn *zmtp.Conn, progress bool) (seq uint64, payload []byte, err error) {
	patience := r.timeout
	if progress {
		patience = max(r.timeout/10, time.Second) // it sends one batch after the other
	}
	if r.left <= 0 {
		return 0, nil, fmt.Errorf("%w: too slow, next is batch %d (%s)", ErrReplaySlow, r.next, r.address)
	}
	start := time.Now()
	frames, err := conn.ReceiveWithin(patience)
	r.left -= time.Since(start)
	if err != nil {
		return 0, nil, err
	}
	seq, payload, err = parseReplay(frames)
	if err != nil {
		return 0, nil, err
	}
	r.left += r.timeout / replayShare * time.Duration(1+len(payload)/replayStep)
	r.left = min(r.left, r.timeout)
	return seq, payload, nil
}

// parseReplay parses a message of an answer: an empty frame, then the topic (from vLLM 0.26 on,
// and SGLang), the sequence number and the payload. The payload is nil at the end of the answer, which has
// the number endOfReplay.
func parseReplay(frames [][]byte) (seq uint64, payload []byte, err error) {
	n := len(frames)
	if n != 3 && n != 4 || len(frames[0]) != 0 || len(frames[n-2]) != 8 {
		return 0, nil, fmt.Errorf("%w: frames of %v bytes", ErrReplay, frameSizes(frames))
	}
	seq, payload = binary.BigEndian.Uint64(frames[n-2]), frames[n-1]
	switch {
	case seq != endOfReplay && len(payload) > 0:
		return seq, payload, nil
	case seq == endOfReplay && len(payload) == 0 && len(frames[n-3]) == 0:
		return seq, nil, nil
	}
	return 0, nil, fmt.Errorf("%w: sequence number %d with a payload of %d bytes", ErrReplay, seq, len(payload))
}

func frameSizes(frames [][]byte) []int {
	sizes := make([]int, len(frames))
	for i, f := range frames {
		sizes[i] = len(f)
	}
	return sizes
}
