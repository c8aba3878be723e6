package events

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/lookuptest"
)

// stuckHolder holds nothing, and its Store waits until it is closed.
type stuckHolder struct {
	noHolder
	until chan struct{}
}

func (h stuckHolder) Store(*Blocks, []bool) error {
	<-h.until
	return nil
}

// largeBatch is a batch that stores blocks with hashes of 8 bytes, which take n bytes in it.
func largeBatch(n int) []byte {
	hashes := make([]uint64, n/9)
	for i := range hashes {
		hashes[i] = 1<<63 + uint64(i)
	}
	return storedBatch(hashes...)
}

// Twelve publishers whose batches are as large as may be, or never end, take no more than Memory has, and end on their own
// sources. Meanwhile others are followed, one with small batches and one with large ones.
func TestMemoryOfHostilePublishers(t *testing.T) {
	batch := eventstest.Message(nil, make([]byte, 8), largeBatch(7<<20))
	for name, message := range map[string][]byte{"batches": batch, "unfinished batches": batch[:len(batch)-1]} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			memory := NewMemory(0)
			until := make(chan struct{})
			finish := sync.OnceFunc(func() { close(until) })
			defer finish()
			base := lookuptest.HeapBytes()
			var hostile []*Follower
			var sending sync.WaitGroup
			for range 12 {
				p := startPublisher(t)
				cfg := p.config()
				cfg.Memory, cfg.Replay, cfg.Timeout = memory, "", 3*time.Second
				hostile = append(hostile, startFollower(t, cfg, stuckHolder{until: until}))
				sending.Go(func() {
					for finished := false; !finished; {
						if p.SendRaw(message) == 0 {
							time.Sleep(time.Millisecond)
						}
						select {
						case <-until:
							finished = true
						default:
						}
					}
				})
			}
			used := memory.batches.Held
			eventually(t, func() bool { return used() >= memory.batches.Max()/2 })
			small, large := startPublisher(t), startPublisher(t)
			cfg := small.config()
			cfg.Memory = memory
			smallFollower, smallSet := follow(t, cfg)
			cfg = large.config()
			cfg.Memory = memory
			largeFollower := startFollower(t, cfg, noHolder{})
			small.awaitSubscriber()
			large.awaitSubscriber()
			largest := int64(0)
			for n := range 5 {
				small.publish(storedBatch(uint64(n)), false)
				large.publish(largeBatch(1<<20), false)
				largest = max(largest, lookuptest.HeapBytes()-base)
			}
			awaitHeld(t, smallSet, 0, 1, 2, 3, 4)
			fiveBatches := func(s Status) bool { return s.Batches == 5 }
			awaitStatus(t, largeFollower, fiveBatches)
			replayed := startFollower(t, cfg, noHolder{})
			awaitStatus(t, replayed, fiveBatches)
			require.Zero(t, replayed.Status().Errors+smallFollower.Status().Errors+largeFollower.Status().Errors)
			require.LessOrEqual(t, largest, batchBytes(0)+14*SourceBytes+5<<20, "5 MiB are in the publisher")

			numRefused := func() (n int) {
				for _, f := range hostile {
					if e := f.Status().LastError; e != "" {
						n++
					}
				}
				return n
			}
			eventually(t, func() bool { return numRefused() >= 9 })
			finish()
			for _, f := range hostile {
				f.Close()
			}
			sending.Wait()
			smallFollower.Close()
			largeFollower.Close()
			replayed.Close()
			require.Zero(t, used(), "everything is given back")
		})
	}
}

// A source takes at most what it leaves. Who waits gets what is given back, or an error in the end.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := admission.New(100)
		first, second, third := share{of: b}, share{of: b}, share{of: b}
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, first.wait(ctx, 50, time.Second))
		require.False(t, first.take(1))
		require.NoError(t, second.wait(ctx, 25, time.Second))
		require.ErrorContains(t, third.wait(ctx, 51, time.Second), "may take half of 100")

		start := time.Now()
		err := third.wait(ctx, 20, time.Second)
		require.ErrorIs(t, err, errMemory)
		require.ErrorContains(t, err, "needs 20 of the 100 bytes that all sources share, and waited 1s")
		require.ErrorContains(t, err, "see max_payload")
		require.Equal(t, time.Second, time.Since(start))

		time.AfterFunc(time.Minute, func() { first.release(5) })
		require.NoError(t, third.wait(ctx, 15, time.Hour), "the second would take more than it leaves")
		time.AfterFunc(time.Minute, cancel)
		require.ErrorIs(t, second.wait(ctx, 20, time.Hour), context.Canceled)
		require.EqualValues(t, []int64{45, 25, 15, 15}, []int64{first.taken, second.taken, third.taken, b.Max() - b.Held()})
	})
}

// Hashes that are small integers take more memory than their batch, and beyond 64 KiB that is the Memory's.
func TestMemoryOfDecoding(t *testing.T) {
	decode := func(memory *Memory, hashes int) error {
		m := &batchMemory{ctx: t.Context(), share: &share{of: memory.batches}, release: func() {}, timeout: time.Millisecond}
		tr := newTracker(noHolder{}, &Config{})
		tr.memory, tr.decoder.reserve = m, m.decode
		_, err := tr.decode(storedBatch(make([]uint64, hashes)...))
		require.Zero(t, m.taken)
		require.LessOrEqual(t, cap(tr.decoder.hashes), maxKept)
		return err
	}
	memory := NewMemory(0)
	require.NoError(t, decode(memory, 1<<20))
	require.Zero(t, memory.batches.Held())
	require.True(t, memory.batches.Admit(memory.batches.Max(), true, 0))
	require.NoError(t, decode(memory, 7000))
	require.ErrorIs(t, decode(memory, 8000), errMemory)
}

// A batch may claim more hashes than it has. No memory is taken for those.
func TestDecoderClaims(t *testing.T) {
	first := msgp.AppendBytes(msgp.AppendArrayHeader(nil, 1<<20), make([]byte, 64))
	field := func(b []byte) []byte {
		return append(append(msgp.AppendString(b, "block_hashes"), first...), make([]byte, 1<<20)...)
	}
	var d Decoder
	largest := 0
	d.reserve = func(bytes int) error { largest = max(largest, bytes); return nil }
	payload := batchOf("BlockStored", field)
	_, err := d.Decode(payload, func(*Event) error { return nil })
	require.ErrorIs(t, err, ErrPayload)
	require.LessOrEqual(t, largest, 9*len(payload))
}

// Copies that find no memory are not counted; blocks that the engine may cache then are any.
func TestMemoryOfCopies(t *testing.T) {
	b := admission.New(4 * copiesStep)
	newCopies := func() *copies {
		c := &copies{memory: share{of: b}}
		require.NoError(t, c.addGroupTier(0, &gpu))
		return c
	}
	fill := func(c *copies) {
		for n := range uint64(1000) {
			c.add(0, &gpu, binary.BigEndian.AppendUint64(nil, n))
			c.addMaybeCached(0, &gpu, binary.BigEndian.AppendUint64(nil, n))
		}
	}
	one, other := newCopies(), newCopies()
	fill(one)
	fill(other)
	require.EqualValues(t, 2*copiesStep, one.taken)
	require.EqualValues(t, copiesStep, other.taken)
	require.EqualValues(t, (10+keyBytes)*(len(other.extra)+len(other.missing)), other.used)
	require.LessOrEqual(t, other.used, other.taken)
	require.True(t, other.isMaybeCached(0, &gpu, []byte("any")))
	for key := range other.extra {
		require.True(t, other.remove(0, &gpu, []byte(key)[2:]))
	}
	require.EqualValues(t, (10+keyBytes)*len(other.missing), other.used)

	restored := newCopies()
	restored.restore(one)
	require.Empty(t, restored.extra)
	require.True(t, restored.isMaybeCached(0, &gpu, []byte("any")), "there was no memory for it")
	one.reset()
	restored.restore(other)
	require.Equal(t, other.missing, restored.missing)
	require.Equal(t, other.used, restored.taken)
	restored.reset()
	other.reset()
	require.Zero(t, b.Held())
}
