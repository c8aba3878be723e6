package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// Bounds of what waits between the socket and the Holder. Behind a slow Holder the queue becomes full, then the
// socket's buffers, then those of the publisher.
const (
	queueBatches = 256
	queueBytes   = 8 << 20 // or one payload, if that is larger
)

// errMessage is the error of a message that is not one of a publisher of KV events.
var errMessage = errors.New("events: not a message of a publisher of KV events")

// liveBatch is a message of the subscription.
type liveBatch struct {
	seq     uint64
	payload *bufpool.Buffer // owned by whoever has the liveBatch
}

// liveQueue is a bounded queue with one sender and one receiver.
type liveQueue struct {
	batches chan liveBatch
	bytes   *semaphore.Weighted
	err     error // why fill has ended; valid when batches is closed
}

func newLiveQueue() *liveQueue {
	return &liveQueue{batches: make(chan liveBatch, queueBatches), bytes: semaphore.NewWeighted(queueBytes)}
}

// fill sends the messages of a connection until an error. Then it closes the queue.
func (q *liveQueue) fill(ctx context.Context, conn *zmtp.Conn, topic string) {
	defer close(q.batches)
	prefix := []byte(topic)
	for q.err == nil {
		frames, err := conn.Receive()
		switch {
		case err != nil:
			q.err = err
		case len(frames) != 3 || len(frames[1]) != 8 || len(frames[2]) == 0:
			q.err = fmt.Errorf("%w: frames of %v bytes", errMessage, frameSizes(frames))
		case bytes.HasPrefix(frames[0], prefix): // a subscription is no promise of the peer
			q.err = q.send(ctx, binary.BigEndian.Uint64(frames[1]), frames[2])
		}
	}
}

// send copies the payload and waits for space. It fails if ctx ends.
func (q *liveQueue) send(ctx context.Context, seq uint64, payload []byte) error {
	if err := q.bytes.Acquire(ctx, weight(len(payload))); err != nil {
		return err
	}
	b := liveBatch{seq: seq, payload: bufpool.Get()}
	b.payload.B = append(b.payload.B[:0], payload...)
	select {
	case q.batches <- b:
		return nil
	case <-ctx.Done():
		q.free(b)
		return ctx.Err()
	}
}

// free releases the payload of a batch that was received.
func (q *liveQueue) free(b liveBatch) {
	n := len(b.payload.B)
	b.payload.Release()
	q.bytes.Release(weight(n))
}

// drain frees what is left after the sender has closed batches.
func (q *liveQueue) drain() {
	for b := range q.batches {
		q.free(b)
	}
}

// weight is what a payload of n bytes counts: a larger one than queueBytes waits alone.
func weight(n int) int64 { return int64(min(n, queueBytes)) }
