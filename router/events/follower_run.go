package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

const (
	// Pauses between connections, and between replays that gaps cause, begin with minBackOff
	// and double up to maxBackOff. Each is up to half shorter or longer, so that sources that fail
	// at one moment do not connect at one moment.
	minBackOff = 100 * time.Millisecond
	maxBackOff = 5 * time.Second

	// A subscription takes effect a moment after it was sent, which is not acknowledged. So a replay follows
	// firstCheck after the connection, unless a batch came: then the subscription is in effect, and the number
	// of that batch has shown whether one was missed before. After checkEvery without a batch another replay
	// checks that none was lost, and that the publisher is the same.
	firstCheck = time.Second
	checkEvery = 5 * time.Second
)

var errClosed = errors.New("the follower is closed")

// run follows one connection after the other until Close.
func (f *Follower) run() {
	connects, replays := newPacer(false), newPacer(true)
	for {
		err := f.runConnection(replays)
		closed := f.ctx.Err() != nil
		if closed {
			err = errClosed
		}
		f.log.failure, f.log.retryIn = err.Error(), connects.next()
		_ = f.update(func(t *tracker) error {
			t.markStale(err.Error())
			t.stats.State = StateConnecting
			if !closed {
				t.stats.Errors++
				t.stats.LastError, t.stats.LastErrorTime = err.Error(), time.Now()
			}
			return nil
		})
		if closed {
			return
		}
		sleep(f.ctx, f.log.retryIn)
	}
}

// runConnection makes a connection and follows it until an error.
func (f *Follower) runConnection(replays *pacer) error {
	conn, err := f.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(f.ctx)
	queue := newLiveQueue()
	go queue.fill(ctx, conn, f.cfg.Topic)
	defer func() {
		cancel()
		_ = conn.Close()
		queue.drain() // ends when fill has
	}()
	if err := conn.Subscribe(f.cfg.Topic); err != nil {
		return err
	}
	needReplay := false
	_ = f.update(func(t *tracker) error { needReplay = t.connected(); return nil })
	if needReplay {
		if err := f.replay(ctx); err != nil {
			return err
		}
	}
	return f.applyAll(ctx, queue, replays)
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

// applyAll applies the batches of the queue until an error.
func (f *Follower) applyAll(ctx context.Context, queue *liveQueue, replays *pacer) error {
	check := time.NewTimer(firstCheck)
	defer check.Stop()
	if f.cfg.Replay == "" {
		check.Stop()
	}
	for {
		select {
		case b, ok := <-queue.batches:
			if !ok {
				return queue.err
			}
			err := f.applyBatch(ctx, b, replays)
			queue.free(b)
			if err != nil {
				return err
			}
		case <-check.C:
			if err := f.replay(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if f.cfg.Replay != "" {
			check.Reset(checkEvery)
		}
	}
}

// applyBatch applies a live batch, after a replay if there is a gap.
func (f *Follower) applyBatch(ctx context.Context, b liveBatch, replays *pacer) error {
	needReplay := false
	live := func(afterReplay bool) error {
		return f.update(func(t *tracker) (err error) {
			needReplay, err = t.live(b.seq, b.payload.B, afterReplay)
			return err
		})
	}
	if err := live(false); err != nil || !needReplay {
		return err
	}
	sleep(ctx, replays.next())
	if err := f.replay(ctx); err != nil {
		return err
	}
	return live(true)
}

// replay asks the replay socket for what is missing.
func (f *Follower) replay(ctx context.Context) error {
	var from uint64
	_ = f.update(func(t *tracker) error { from = t.beginReplay(); return nil })
	err := replay(ctx, &f.cfg, from, func(seq uint64, payload []byte) error {
		return f.update(func(t *tracker) error { return t.replayed(seq, payload) })
	})
	if err == nil {
		err = f.update((*tracker).endReplay)
	}
	if err != nil {
		return fmt.Errorf("replay from %d: %w", from, err)
	}
	return nil
}

// pacer spaces out what a publisher may cause over and over.
type pacer struct {
	backOff *backoff.ExponentialBackOff
	atOnce  bool      // there is no pause if the last is long ago
	last    time.Time // when the last pause ends
}

func newPacer(atOnce bool) *pacer {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval, b.RandomizationFactor = minBackOff, 2, maxBackOff, 0.5
	b.Reset()
	return &pacer{backOff: b, atOnce: atOnce}
}

// next returns the next pause: longer from time to time, and the shortest if the last is long ago.
func (p *pacer) next() (pause time.Duration) {
	isFirst := time.Since(p.last) >= 2*maxBackOff
	if isFirst {
		p.backOff.Reset()
	}
	if !isFirst || !p.atOnce {
		pause = p.backOff.NextBackOff()
	}
	p.last = time.Now().Add(pause)
	return pause
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
