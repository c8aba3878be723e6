package events

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// hostile is a publisher that sends what it likes: flood is called over and over with a
// connection after its handshake, until it fails.
func hostile(t *testing.T, flood func(peer *zmtpPeer, n uint64) error) (p *testPublisher, stop func()) {
	p = startPublisher(t)
	var stopped atomic.Bool
	p.running.Go(func() {
		for n := uint64(0); !stopped.Load(); n++ {
			p.mu.Lock()
			var peers []*zmtpPeer
			for peer := range p.subscribers {
				peers = append(peers, peer)
			}
			p.mu.Unlock()
			for _, peer := range peers {
				if flood(peer, n) != nil {
					_ = peer.Close()
				}
			}
			if len(peers) == 0 {
				runtime.Gosched()
				time.Sleep(time.Millisecond) // only this publisher waits
			}
		}
	})
	stop = func() { stopped.Store(true) }
	t.Cleanup(stop)
	return p, stop
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// A hostile publisher costs its own source alone: another one is followed meanwhile, the number
// of replays and connections is bounded, and so is memory.
func TestFollowerHostilePublishers(t *testing.T) {
	huge := make([]byte, 2<<20)
	// As many hashes as fit a payload, in one event.
	manyHashes := make([]uint64, 100_000)
	for i := range manyHashes {
		manyHashes[i] = uint64(i) << 40
	}
	many := storedBatch(manyHashes...)
	nested := make([]byte, 1<<20)
	for i := range nested {
		nested[i] = 0x91 // an array of one element
	}
	claim := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), 1), 1<<31)
	failsTwice := func(s Status) bool { return s.Errors >= 2 }
	for name, test := range map[string]struct {
		flood func(peer *zmtpPeer, n uint64) error
		until func(s Status) bool
	}{
		"gaps":            {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n*7+5), storedBatch(n)) }, func(s Status) bool { return s.Replays >= 5 }},
		"backward":        {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(1<<40-n), storedBatch(n)) }, func(s Status) bool { return s.Replays >= 5 }},
		"one number":      {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(3), storedBatch(n)) }, func(s Status) bool { return s.Restarts >= 3 }},
		"last number":     {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(1<<64-1), storedBatch(n)) }, failsTwice},
		"garbage batches": {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), []byte("\xc1garbage")) }, failsTwice},
		"nested batches":  {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), nested) }, failsTwice},
		"lying lengths":   {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), claim) }, failsTwice},
		"huge batches":    {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), huge) }, failsTwice},
		"many hashes":     {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), many) }, failsTwice},
		"few frames":      {func(p *zmtpPeer, n uint64) error { return p.send(seqFrame(n), many[:10]) }, failsTwice},
		"short number":    {func(p *zmtpPeer, n uint64) error { return p.send(nil, []byte{1}, many[:10]) }, failsTwice},
		"no payload":      {func(p *zmtpPeer, n uint64) error { return p.send(nil, seqFrame(n), nil) }, failsTwice},
		"garbage frames":  {func(p *zmtpPeer, n uint64) error { _, err := p.Write(huge[:100:100]); return err }, failsTwice},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			start := time.Now()
			good := startPublisher(t)
			goodFollower, goodSet := follow(t, good.config())
			bad, stop := hostile(t, test.flood)
			cfg := bad.config()
			cfg.MaxPayload, cfg.MaxBlocks = 1<<20, 50_000
			badFollower, badSet := follow(t, cfg)
			good.awaitSubscriber()
			want := make([]uint64, 0, 200)
			for i := range uint64(200) {
				good.publish(storedBatch(i), false)
				want = append(want, i)
			}
			awaitHeld(t, goodSet, want...)
			require.Zero(t, goodFollower.Status().Errors)
			eventually(t, func() bool { return test.until(badFollower.Status()) })
			if badFollower.Status().Replays >= 5 {
				// Without a pause at most twice, then 50 and 100 ms at least, or more.
				require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
			}
			stop()
			badFollower.Close()

			// Pauses begin with 50 ms at least, so few attempts fit in any time; a replay
			// asks several times at a gap.
			s := badFollower.Status()
			attempts := 10 + int64(time.Since(start)/(50*time.Millisecond))
			require.LessOrEqual(t, s.Connects, attempts)
			require.LessOrEqual(t, s.Replays, 3*attempts)
			require.LessOrEqual(t, badSet.Len(), 50_000+maxApply)
			require.True(t, badSet.Stale())
		})
	}
}

// What waits between the reader and the Holder is bounded in bytes and batches.
func TestLiveQueueIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := newLiveQueue()
	for range queueBytes / (1 << 20) {
		require.NoError(t, q.send(ctx, 0, make([]byte, 1<<20)))
	}
	require.False(t, q.bytes.TryAcquire(1))
	sent := make(chan error)
	go func() { sent <- q.send(ctx, 1, []byte("waits")) }()
	q.free(<-q.batches)
	require.NoError(t, <-sent)

	go func() { sent <- q.send(ctx, 2, make([]byte, queueBytes+1)) }() // for all of it
	for range queueBytes / (1 << 20) {
		q.free(<-q.batches)
	}
	require.NoError(t, <-sent)
	b := <-q.batches
	require.Len(t, b.payload.B, queueBytes+1)
	require.False(t, q.bytes.TryAcquire(1))
	q.free(b)
	require.True(t, q.bytes.TryAcquire(queueBytes))
	q.bytes.Release(queueBytes)

	for range queueBatches {
		require.NoError(t, q.send(ctx, 3, []byte("small")))
	}
	go func() { sent <- q.send(ctx, 3, []byte("one too many")) }()
	cancel()
	require.ErrorIs(t, <-sent, context.Canceled)
	close(q.batches)
	q.drain()
	require.True(t, q.bytes.TryAcquire(queueBytes))
}

// Removals that name no group are made in all of them. A batch of 64 MiB takes minutes then; Close does
// not wait for its end.
func TestFollowerClosesDuringABatch(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	cfg := p.config()
	cfg.Replay = ""
	h := &slowRemoval{testSet: newTestSet(), begun: make(chan struct{})}
	f, err := NewFollower(cfg, h)
	require.NoError(t, err)
	h.until = f.ctx.Done()
	require.NoError(t, f.Start())
	t.Cleanup(f.Close)
	p.awaitSubscriber()
	p.sendAs(0, storedBatch(1))
	p.sendAs(1, removedBatch(make([]uint64, 3*maxApply)...))
	<-h.begun
	f.Close()
	require.Equal(t, 1, h.calls)
	require.True(t, h.Stale())
}

// slowRemoval is a Holder whose first Remove returns when until is closed.
type slowRemoval struct {
	*testSet
	begun chan struct{}
	until <-chan struct{}
	calls int
}

func (h *slowRemoval) Remove(b *Blocks) error {
	if h.calls++; h.calls == 1 {
		close(h.begun)
		<-h.until
	}
	return h.testSet.Remove(b)
}
