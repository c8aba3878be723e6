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
