package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/requesterror"
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
	connects, replays, restarts := newPacer(false), newPacer(true), newPacer(true)
	for {
		err := requesterror.Call(func() error { return f.runConnection(replays) })
		closed := f.ctx.Err() != nil
		if closed {
			err = errClosed
		}
		pacer := connects
		if errors.Is(err, errOtherPublisher) { // the engine is there
			pacer = restarts
		}
		f.log.failure, f.log.retryIn = err.Error(), pacer.next()
		_ = f.update(func(t *tracker) error {
			t.markStale(err.Error())
			t.stats.State = StateConnecting
			if closed {
				t.copies.reset()
			} else {
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
	if f.cfg.CPU != nil {
		f.cpu = f.cfg.CPU.NewClaim(cpushare.Key{Listener: "events", Credential: f.cfg.Name})
		defer f.cpu.Close()
		defer context.AfterFunc(f.ctx, f.cpu.Close)() // it may wait for a processor
	}
	memory := f.newBatchMemory(f.ctx)
	defer memory.free()
	conn, err := f.connect(memory)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.Subscribe(f.cfg.Topic); err != nil {
		return err
	}
	needReplay := false
	_ = f.update(func(t *tracker) error { needReplay = t.connected(); return nil })
	if needReplay {
		if err := f.replay(false); err != nil {
			return err
		}
	}
	return f.applyAll(conn, memory, replays)
}

// connect makes a connection, or waits for one if the source binds.
func (f *Follower) connect(memory *batchMemory) (*zmtp.Conn, error) {
	cfg := zmtp.Config{
		SocketType: zmtp.SUB, MaxMessage: f.cfg.MaxPayload + maxEnvelope, Timeout: f.cfg.Timeout, Reserve: memory.reserve, CPU: f.cpu,
	}
	if f.binding != nil {
		return f.binding.accept(f.ctx, cfg)
	}
	network, address, err := zmtp.DialAddress(f.cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	return zmtp.Dial(f.ctx, network, address, cfg)
}

// errMessage is the error of a message that is not one of a publisher of KV events.
var errMessage = errors.New("not a message of a publisher of KV events")

// liveBatch is a message of the subscription. The payload is borrowed until the next one.
type liveBatch struct {
	seq     uint64
	payload []byte
}

// receive returns the next batch, or fails with zmtp.ErrNoMessage if none has begun within a time; 0: it waits.
func (f *Follower) receive(conn *zmtp.Conn, within time.Duration) (liveBatch, error) {
	for end := time.Now().Add(within); ; {
		frames, err := conn.ReceiveWithin(within)
		switch {
		case err != nil:
			return liveBatch{}, err
		case len(frames) != 3 || len(frames[1]) != 8 || len(frames[2]) == 0:
			return liveBatch{}, fmt.Errorf("%w: frames of %v bytes", errMessage, frameSizes(frames))
		case bytes.HasPrefix(frames[0], []byte(f.cfg.Topic)): // a subscription is no promise of the peer
			return liveBatch{binary.BigEndian.Uint64(frames[1]), frames[2]}, nil
		}
		if err := conn.CountIdle(); err != nil {
			return liveBatch{}, err
		}
		if within > 0 {
			if within = time.Until(end); within <= 0 {
				return liveBatch{}, zmtp.ErrNoMessage
			}
		}
	}
}

// applyAll applies the batches of a connection until an error.
func (f *Follower) applyAll(conn *zmtp.Conn, memory *batchMemory, replays *pacer) error {
	first, later := firstCheck, checkEvery
	if f.cfg.Replay == "" {
		first, later = 0, 0
	}
	for wait := first; ; wait = later {
		b, err := f.receive(conn, wait)
		switch {
		case errors.Is(err, zmtp.ErrNoMessage):
			err = f.replay(true)
		case err == nil:
			err = f.applyBatch(b, replays)
		}
		if err != nil {
			return err
		}
		memory.free()
	}
}

// applyBatch applies a live batch, after a replay if there is a gap.
func (f *Follower) applyBatch(b liveBatch, replays *pacer) error {
	needReplay := false
	live := func(afterReplay bool) error {
		return f.update(func(t *tracker) (err error) {
			needReplay, err = t.live(b.seq, b.payload, afterReplay)
			return err
		})
	}
	if err := live(false); err != nil || !needReplay {
		return err
	}
	f.release()
	sleep(f.ctx, replays.next())
	if err := f.replay(false); err != nil {
		return err
	}
	return live(true)
}

// replay asks the replay socket for what is missing, or with check whether anything is.
func (f *Follower) replay(check bool) error {
	var from uint64
	_ = f.update(func(t *tracker) error {
		if check {
			t.stats.Checks++
		} else {
			t.stats.Replays++
		}
		from = t.beginReplay()
		return nil
	})
	memory := f.newBatchMemory(f.ctx)
	defer memory.free()
	err := replay(f.ctx, &f.cfg, memory, f.cpu, from, func(seq uint64, payload []byte) error {
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
