package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/netproto"
)

// A hostile publisher costs its own source alone: another one is followed meanwhile, the number
// of replays and connections is bounded, and so is memory.
func TestFollowerHostilePublishers(t *testing.T) {
	huge := make([]byte, 2<<20)
	nested := bytes.Repeat([]byte{0x91}, 1<<20) // arrays of one element
	claim := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), 1), 1<<31)
	seqFrame := func(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
	batch := func(seq uint64, payload []byte) []byte { return eventstest.Message(nil, seqFrame(seq), payload) }
	commands := bytes.Repeat(netproto.AppendCommand(nil, netproto.CommandPing, "\x00\x00"), 3000)
	otherTopics := bytes.Repeat(eventstest.Message([]byte("other"), seqFrame(0), []byte("\xc1")), 3000)
	failsTwice := func(s Status) bool { return s.Errors >= 2 }
	replays := func(s Status) bool { return s.Replays >= 5 }
	for name, test := range map[string]struct {
		flood func(n uint64) []byte // what is sent, for n = 0, 1, 2 ...
		until func(s Status) bool
		topic string // that is subscribed to
	}{
		"gaps":            {func(n uint64) []byte { return batch(n*7+5, storedBatch(n)) }, replays, ""},
		"backward":        {func(n uint64) []byte { return batch(1<<40-n, storedBatch(n)) }, replays, ""},
		"one number":      {func(n uint64) []byte { return batch(3, storedBatch(n)) }, func(s Status) bool { return s.Restarts >= 3 }, ""},
		"last number":     {func(n uint64) []byte { return batch(1<<64-1, storedBatch(n)) }, failsTwice, ""},
		"garbage batches": {func(n uint64) []byte { return batch(n, []byte("\xc1garbage")) }, failsTwice, ""},
		"nested batches":  {func(n uint64) []byte { return batch(n, nested) }, failsTwice, ""},
		"lying lengths":   {func(n uint64) []byte { return batch(n, claim) }, failsTwice, ""},
		"huge batches":    {func(n uint64) []byte { return batch(n, huge) }, failsTwice, ""},
		"few frames":      {func(n uint64) []byte { return eventstest.Message(seqFrame(n), storedBatch(n)) }, failsTwice, ""},
		"short number":    {func(n uint64) []byte { return eventstest.Message(nil, []byte{1}, storedBatch(n)) }, failsTwice, ""},
		"no payload":      {func(n uint64) []byte { return batch(n, nil) }, failsTwice, ""},
		"garbage frames":  {func(n uint64) []byte { return huge[:100] }, failsTwice, ""},
		"commands":        {func(n uint64) []byte { return commands }, failsTwice, ""},
		"other topics":    {func(n uint64) []byte { return otherTopics }, failsTwice, "kv"},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			start := time.Now()
			good, bad := startPublisher(t), startPublisher(t)
			goodFollower, goodSet := follow(t, good.config())
			cfg := bad.config()
			cfg.MaxPayload, cfg.Topic = 1<<20, test.topic
			badFollower, badSet := follow(t, cfg)
			ctx, stop := context.WithCancel(t.Context())
			var flooding sync.WaitGroup
			flooding.Go(func() {
				for n := uint64(0); ctx.Err() == nil; n++ {
					if bad.SendRaw(test.flood(n)) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
			good.awaitSubscriber()
			want := make([]uint64, 200)
			for i := range want {
				want[i] = uint64(i)
				good.publish(storedBatch(want[i]), false)
			}
			awaitHeld(t, goodSet, want...)
			require.Zero(t, goodFollower.Status().Errors)
			awaitStatus(t, badFollower, test.until)
			if badFollower.Status().Replays >= 5 {
				// Without a pause at most twice, then 50 and 100 ms at least, or more.
				require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
			}
			stop()
			badFollower.Close()
			flooding.Wait()

			// Pauses begin with 50 ms at least, so few attempts fit in any time; a replay
			// asks several times at a gap.
			s := badFollower.Status()
			attempts := 10 + int64(time.Since(start)/(50*time.Millisecond))
			require.LessOrEqual(t, s.Connects, attempts)
			require.LessOrEqual(t, s.Replays, 3*attempts)
			require.True(t, badSet.Stale())
		})
	}
}

// Removals that name no group are made in all of them. A batch of 64 MiB takes minutes then; Close does
// not wait for its end.
func TestFollowerClosesDuringABatch(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	cfg := p.config()
	cfg.Replay = ""
	h := &slowRemoval{testSet: newTestSet(), begun: make(chan struct{}), until: make(chan struct{})}
	f := startFollower(t, cfg, h)
	context.AfterFunc(f.ctx, func() { close(h.until) })
	p.awaitSubscriber()
	p.SendAs(0, storedBatch(1))
	p.SendAs(1, removedBatch(make([]uint64, 3*maxApply)...))
	<-h.begun
	f.Close()
	require.Equal(t, 1, h.calls)
	require.True(t, h.Stale())
}

// slowRemoval is a Holder whose first Remove returns when until is closed.
type slowRemoval struct {
	*testSet
	begun, until chan struct{}
	calls        int
}

func (h *slowRemoval) Remove(b *Blocks) error {
	if h.calls++; h.calls == 1 {
		close(h.begun)
		<-h.until
	}
	return h.testSet.Remove(b)
}

// A source computes on a processor of its share, and has none while it waits for its publisher. Between the parts of a batch
// it lets others compute.
func TestFollowerSharesProcessors(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	cfg := p.config()
	cfg.Replay, cfg.CPU = "", cpushare.New(1)
	other := cfg.CPU.NewClaim(cpushare.Key{Listener: "other"})
	f, set := follow(t, cfg)
	p.awaitSubscriber()
	for n := range uint64(3) {
		p.SendAs(n, storedBatch(n))
		require.True(t, other.Acquire())
		other.Release()
	}
	awaitHeld(t, set, 0, 1, 2)
	require.True(t, other.Acquire())
	p.SendAs(3, storedBatch(3))
	p.SendAs(4, storedBatch(4))
	f.Close() // it waits for a processor
	require.Equal(t, 3, set.Len())

	synctest.Test(t, func(t *testing.T) {
		share := cpushare.New(1)
		f := &Follower{ctx: t.Context(), cpu: share.NewClaim(cpushare.Key{Listener: "events"})}
		other := share.NewClaim(cpushare.Key{Listener: "other"})
		require.NoError(t, f.yield())
		go func() {
			other.Acquire()
			time.Sleep(time.Second)
			other.Release()
		}()
		time.Sleep(time.Second) // its turn is over
		start := time.Now()
		require.NoError(t, f.yield())
		require.Equal(t, time.Second, time.Since(start))
	})
}

// pausingHolder is a Holder that waits for another connection, which computes meanwhile.
type pausingHolder struct {
	*testSet
	other *cpushare.Claim
}

func (h *pausingHolder) Store(b *Blocks, held []bool) error {
	defer b.Pause()()
	if !h.other.Acquire() {
		return errors.New("the source kept its processor")
	}
	h.other.Release()
	return h.testSet.Store(b, held)
}

// A Holder can wait for others without the processor of its source.
func TestHolderPauses(t *testing.T) {
	p := startPublisher(t)
	cfg := p.config()
	cfg.Replay, cfg.CPU = "", cpushare.New(1)
	set := newTestSet()
	f := startFollower(t, cfg, &pausingHolder{set, cfg.CPU.NewClaim(cpushare.Key{Listener: "other"})})
	p.awaitSubscriber()
	p.publish(storedBatch(1), false)
	awaitStatus(t, f, func(s Status) bool { return s.Batches == 1 })
	require.Empty(t, f.Status().LastError)
	require.Equal(t, 1, set.Len())
}
