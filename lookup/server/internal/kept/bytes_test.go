package kept

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue of kept bytes gives what a buffer gives.
func TestKeptBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var kept Bytes
	var want bytes.Buffer
	next := byte(0)
	for range 2000 {
		if rng.IntN(2) == 0 {
			p := make([]byte, rng.IntN(3*largeChunk))
			for i := range p {
				p[i], next = next, next+1
			}
			kept.Append(p, int64(want.Len()))
			want.Write(p)
		}
		front, _ := kept.Front()
		require.Equal(t, want.Len() > 0, len(front) > 0)
		require.Equal(t, want.Bytes()[:len(front)], front)
		n := rng.IntN(len(front) + 1)
		kept.Drop(n)
		want.Next(n)
		require.Equal(t, want.Len(), kept.Size())
		require.LessOrEqual(t, kept.Held(), want.Len()+2*largeChunk)
	}
	kept.Release()
	require.Equal(t, &Bytes{}, &kept)
}
