package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

const (
	// Waits before a new connection, and between replays that gaps cause, begin with minBackOff
	// and double up to maxBackOff. They begin anew after a connection that lasted maxBackOff, and
	// after twice that without such a replay.
	minBackOff = 100 * time.Millisecond
	maxBackOff = 5 * time.Second

	// A subscription takes effect a moment after it was sent, which is not acknowledged. So a
	// replay follows firstCheck after the connection. After checkEvery without a batch another
	// replay checks that none was lost, and that the publisher is the same.
	firstCheck = time.Second
	checkEvery = 5 * time.Second
)

// errMessage is the error of a message that is not one of a publisher of KV events.
var errMessage = errors.New("events: not a message of a publisher of KV events")

// newBackOff returns a backoff from minBackOff to maxBackOff, randomized by half.
func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval, b.RandomizationFactor = minBackOff, 2, maxBackOff, 0.5
	b.Reset()
	return b
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// run follows one connection after the other until ctx ends.
func (f *Follower) run() {
	connects := newBackOff()
	replays := &replayLimiter{backOff: newBackOff()}
	for {
		since := time.Now()
		err := f.runConnection(replays)
		f.pausing.lock()
		f.tracker.markStale(disconnectReason(f.ctx, err))
		f.pausing.unlock()
		f.tracker.stats.State = StateConnecting
		if f.ctx.Err() != nil {
			f.log.close()
			f.publishStatus()
			return
		}
		if time.Since(since) >= maxBackOff {
			connects.Reset()
		}
		pause := connects.NextBackOff()
		f.tracker.stats.Errors++
		f.tracker.stats.LastError, f.tracker.stats.LastErrorTime = err.Error(), time.Now()
		f.log.failed(err, pause)
		f.publishStatus()
		sleep(f.ctx, pause)
	}
}

func disconnectReason(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "the follower is closed"
	}
	return err.Error()
}

// runConnection makes a connection and follows it until an error.
func (f *Follower) runConnection(replays *replayLimiter) error {
	conn, err := f.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Subscribe(f.cfg.Topic); err != nil {
		return err
	}
	c := &connection{f: f, conn: conn, queue: newLiveQueue(), replays: replays}
	return c.follow()
}

// connect makes a connection, or waits for one if the source binds.
func (f *Follower) connect() (*zmtp.Conn, error) {
	cfg := zmtp.Config{SocketType: zmtp.SUB, MaxMessage: f.cfg.MaxPayload + maxEnvelope, Timeout: f.cfg.Timeout}
	if f.acceptor != nil {
		return f.acceptor.accept(f.ctx, cfg)
	}
	network, address, err := zmtp.DialAddress(f.cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	return zmtp.Dial(f.ctx, network, address, cfg)
}

// connection is one connection of a Follower.
type connection struct {
	f       *Follower
	conn    *zmtp.Conn
	queue   *liveQueue
	readErr error // why the reader stopped; valid when the queue is closed
	replays *replayLimiter

	checkTimer *time.Timer // nil without a replay socket
	lastBatch  time.Time
}

// follow reads and applies until an error. It returns when the reader has stopped.
func (c *connection) follow() error {
	ctx, cancel := context.WithCancel(c.f.ctx)
	go c.read(ctx)
	defer func() {
		cancel()
		_ = c.conn.Close()
		c.queue.drain() // ends when the reader has
	}()
	c.f.pausing.lock()
	needReplay := c.f.tracker.connected()
	c.f.pausing.unlock()
	if needReplay {
		if err := c.replay(ctx); err != nil {
			return err
		}
	}
	c.f.tracker.stats.State = StateLive
	c.f.publishStatus()
	return c.apply(ctx)
}

// read passes the messages of the connection to the queue, which it closes at the end.
func (c *connection) read(ctx context.Context) {
	defer close(c.queue.batches)
	for {
		frames, err := c.conn.Receive()
		if err != nil {
			c.readErr = err
			return
		}
		if len(frames) != 3 || len(frames[1]) != 8 || len(frames[2]) == 0 {
			c.readErr = fmt.Errorf("%w: %d frames", errMessage, len(frames))
			return
		}
		topic := c.f.cfg.Topic
		if len(frames[0]) < len(topic) || string(frames[0][:len(topic)]) != topic {
			continue // a subscription is no promise of the peer
		}
		if err := c.queue.send(ctx, binary.BigEndian.Uint64(frames[1]), frames[2]); err != nil {
			c.readErr = err
			return
		}
	}
}

// apply applies the batches of the queue.
func (c *connection) apply(ctx context.Context) error {
	var check <-chan time.Time
	if c.f.tracker.hasReplay {
		c.checkTimer = time.NewTimer(firstCheck)
		defer c.checkTimer.Stop()
		check = c.checkTimer.C
	}
	first := true
	for {
		select {
		case b, ok := <-c.queue.batches:
			if !ok {
				return c.readErr
			}
			err := c.applyBatch(ctx, b)
			c.queue.free(b)
			if err != nil {
				return err
			}
		case <-check:
			if quiet := time.Since(c.lastBatch); quiet < checkEvery && !first {
				c.checkTimer.Reset(checkEvery - quiet)
				continue
			}
			first = false
			if err := c.replay(ctx); err != nil {
				return err
			}
			c.checkTimer.Reset(checkEvery)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// applyBatch applies a live batch, after a replay if there is a gap.
func (c *connection) applyBatch(ctx context.Context, b liveBatch) error {
	t := c.f.tracker
	c.lastBatch = time.Now()
	t.stats.LastEvent = c.lastBatch
	c.f.pausing.lock()
	v, err := t.live(b.seq, b.payload.B, false)
	c.f.pausing.unlock()
	if v == needReplay && err == nil {
		c.f.publishStatus()
		c.replays.wait(ctx)
		if err := c.replay(ctx); err != nil {
			return err
		}
		c.f.pausing.lock()
		_, err = t.live(b.seq, b.payload.B, true)
		c.f.pausing.unlock()
	}
	if err == nil {
		c.f.publishStatus()
	}
	return err // run publishes the status then
}

// replay asks the replay socket for what is missing.
func (c *connection) replay(ctx context.Context) error {
	t := c.f.tracker
	t.stats.State = StateReplaying
	from := t.beginReplay()
	c.f.publishStatus()
	err := replay(ctx, c.f.cfg.Replay, from, c.f.cfg, func(seq uint64, payload []byte) error {
		batches := t.stats.Batches
		c.f.pausing.lock()
		err := t.replayed(seq, payload)
		c.f.pausing.unlock()
		if t.stats.Batches > batches { // the first is one that was applied before
			t.stats.LastEvent = time.Now()
		}
		if err == nil {
			c.f.publishStatus()
		}
		return err
	})
	if err == nil {
		c.f.pausing.lock()
		err = t.endReplay()
		c.f.pausing.unlock()
	}
	if err != nil {
		return fmt.Errorf("replay from %d: %w", from, err) // run publishes the status then
	}
	t.stats.State = StateLive
	c.f.publishStatus()
	return nil
}

// replayLimiter spaces out the replays that a publisher causes with its numbers.
type replayLimiter struct {
	backOff *backoff.ExponentialBackOff
	last    time.Time // when the last wait ended
}

// wait waits before a replay: not at all if the last is long ago.
func (l *replayLimiter) wait(ctx context.Context) {
	if time.Since(l.last) >= 2*maxBackOff {
		l.backOff.Reset()
	} else {
		sleep(ctx, l.backOff.NextBackOff())
	}
	l.last = time.Now()
}
