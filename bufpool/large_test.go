package bufpool

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// dropKept empties the list of kept arrays.
func dropKept() {
	for len(keptArrays) > 0 {
		<-keptArrays
	}
}

func TestGetFor(t *testing.T) {
	if Debug {
		t.Skip("nothing is reused in this build")
	}
	dropKept()
	defer dropKept()
	release := func(size int) *byte {
		b := &Buffer{B: make([]byte, 1, size)}
		first := &b.B[0]
		b.Release()
		return first
	}
	require.Less(t, cap(GetFor(2<<20).B), 2<<20, "nothing is allocated ahead")
	two := release(2 << 20)
	require.Less(t, cap(GetFor(3<<20).B), 2<<20, "it is too short")
	require.Less(t, cap(GetFor(maxPooled).B), 2<<20, "the pool has these")
	four := release(4 << 20)
	b := GetFor(3 << 20)
	require.Empty(t, b.B)
	require.Same(t, four, &b.B[:1][0])
	b = GetFor(2 << 20)
	require.Same(t, two, &b.B[:1][0])
	require.Empty(t, keptArrays)

	release(maxKept + 1)
	require.Empty(t, keptArrays)
	for range numKept + 2 {
		release(2 << 20)
	}
	require.Len(t, keptArrays, numKept)
	require.Less(t, cap(GetFor(3<<20).B), 2<<20)
	require.Len(t, keptArrays, numKept, "those that were too short are still kept")
	large := release(4 << 20)
	release(2 << 20)
	b = GetFor(3 << 20)
	require.NotZero(t, cap(b.B), "the larger one stays")
	require.Same(t, large, &b.B[:1][0])
}

func TestGetForInDebugBuilds(t *testing.T) {
	if !Debug {
		t.Skip("not a debug build")
	}
	(&Buffer{B: make([]byte, 0, 2<<20)}).Release()
	require.Zero(t, cap(GetFor(2<<20).B))
}
