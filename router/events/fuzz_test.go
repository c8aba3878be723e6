package events

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// FuzzDecode decodes any bytes. What is accepted must be one msgpack value, and the events must
// keep the bounds.
func FuzzDecode(f *testing.F) {
	for _, c := range goldenEvents {
		f.Add(sampleBatch(c.event))
	}
	f.Add(benchBatches(2, true)[0])
	var used Decoder // has decoded other payloads before
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := bytes.Clone(payload)
		var hashes int
		each := func(e *Event) error {
			checkEvent(t, e)
			hashes += e.Hashes.Len()
			return nil
		}
		batch, err := used.Decode(payload, each)
		require.Equal(t, before, payload, "the payload is not written")
		require.LessOrEqual(t, hashes, len(payload))
		if err != nil {
			require.ErrorIs(t, err, ErrPayload)
			return
		}
		rest, skipErr := msgp.Skip(payload)
		require.NoError(t, skipErr)
		require.Empty(t, rest)
		require.GreaterOrEqual(t, batch.Rank, -1)
		got, _, err := decodeAll(&used, payload)
		want, _, wantErr := decodeAll(new(Decoder), payload)
		require.Len(t, got, len(want))
		require.Equal(t, want, got, "a new decoder and one that was used")
		require.Equal(t, wantErr, err)
	})
}

// checkEvent checks what holds for every event.
func checkEvent(t *testing.T, e *Event) {
	require.LessOrEqual(t, e.Kind, KindCleared)
	require.LessOrEqual(t, e.Hashes.HashLen(), maxHashLen)
	require.LessOrEqual(t, len(e.Parent), maxHashLen)
	require.GreaterOrEqual(t, e.BlockSize, int64(0))
	require.GreaterOrEqual(t, e.Group, NoGroup)
	require.GreaterOrEqual(t, e.SlidingWindow, int64(-1))
	for _, name := range []string{e.Tier.Medium, e.Tier.Locality, e.Tier.Ownership, e.SpecKind} {
		require.LessOrEqual(t, len(name), MaxName)
	}
	if e.Kind == KindUnknown || e.Kind == KindCleared {
		want := Event{Kind: e.Kind, Blocks: Blocks{Group: NoGroup, SlidingWindow: -1}}
		require.Equal(t, want, *e)
	}
}

// FuzzTracker passes any batches under any numbers, live and in replays. Each op is a byte, with
// the number in its upper bits: a copy of a block is counted only while the block is held, and
// the Holder is stale whenever the tracker is.
func FuzzTracker(f *testing.F) {
	f.Add([]byte("\x00\x10\x20\x21\x31\x02\x03\x13\x04\x05\x06"), []byte(nil))
	f.Add([]byte("\x04\x02\x13\x23\x33\x03\x00\x50\x05\x06\x07\x17"), storedBatch(1, 2))
	f.Fuzz(func(t *testing.T, ops, raw []byte) {
		if len(ops) > 256 {
			return
		}
		batches := [][]byte{storedBatch(1, 2), gpuEvent(false, 1), removedBatch(1), gpuEvent(true, 2, 2),
			batchOf("AllBlocksCleared"), batchOf("BlockMoved"), batchOf("BlockRemoved", hashesField(2)), raw}
		cfg := new(Config)
		if len(ops)%2 == 0 {
			cfg.Replay = "tcp://127.0.0.1:1"
		}
		set := newTestSet()
		tr := newTracker(set, cfg)
		inReplay := tr.connected()
		if inReplay {
			tr.beginReplay()
		}
		for i, op := range ops {
			seq, payload := uint64(op>>4), batches[(i+int(op>>3))%len(batches)]
			var err error
			switch op % 8 {
			case 0, 1, 2, 3:
				if inReplay {
					err = tr.replayed(seq, payload)
				} else if _, err = tr.live(seq, payload, op%2 == 0); err == nil && set.Stale() {
					inReplay = true
					tr.beginReplay()
				}
			case 4, 5:
				if inReplay {
					err = tr.endReplay()
					inReplay = false
				}
			case 6:
				if !inReplay && tr.hasReplay {
					tr.beginReplay()
					inReplay = true
				}
			default:
				err = errMessage
			}
			if err != nil {
				tr.markStale(err.Error())
				require.True(t, set.Stale())
				if inReplay = tr.connected(); inReplay {
					tr.beginReplay()
				}
			}
			require.Equal(t, tr.stats.Stale, set.Stale())
			for key := range tr.copies.extra {
				at := tr.copies.groupTiers.list[int(key[0])|int(key[1])<<8]
				set.SetStale(false)
				require.True(t, set.Contains(at.Group, at.Tier, []byte(key[2:])))
				set.SetStale(tr.stats.Stale)
			}
		}
	})
}
