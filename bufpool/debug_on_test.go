//go:build race

package bufpool

import (
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// panicText returns the text that f panics with.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		text, _ = recover().(string)
		require.NotEmpty(t, text, "no panic")
	}()
	f()
	return ""
}

// requireTwoLocations checks that a panic text names two different lines of this file.
func requireTwoLocations(t *testing.T, text string) {
	t.Helper()
	locations := regexp.MustCompile(`debug_on_test\.go:\d+`).FindAllString(text, -1)
	require.Len(t, locations, 2, text)
	require.NotEqual(t, locations[0], locations[1], text)
}

func TestReleasedBufferIsOverwritten(t *testing.T) {
	b := Get()
	b.B = append(make([]byte, 0, 100), "content"...)
	kept := b.B[:cap(b.B)]
	b.Release()
	require.Len(t, kept, 100)
	for i, c := range kept {
		require.Equal(t, byte(0xCC), c, "byte %d", i)
	}

	// The array is never reused, so the bytes stay.
	for range 100 {
		other := Get()
		other.B = append(other.B, "something else"...)
		require.Equal(t, byte(0xCC), kept[0])
		other.Release()
	}
}

func TestReleasedWordsAreOverwritten(t *testing.T) {
	w := GetWords(9)
	kept := w.W
	w.W = nil
	w.Release()
	for i, word := range kept {
		require.Equal(t, uint64(0xCCCC_CCCC_CCCC_CCCC), word, "word %d", i)
	}
	for range 100 {
		other := GetWords(9)
		require.Equal(t, uint64(0xCCCC_CCCC_CCCC_CCCC), kept[0])
		other.Release()
	}
}

func TestSecondReleasePanics(t *testing.T) {
	b := Get()
	b.Release()
	text := panicText(t, b.Release)
	require.Contains(t, text, "bufpool: second Release of a *bufpool.Buffer")
	requireTwoLocations(t, text)

	w := GetWords(1)
	w.Release()
	text = panicText(t, w.Release)
	require.Contains(t, text, "bufpool: second Release of a *bufpool.Words")
	requireTwoLocations(t, text)
}

// TestReleaseTrackerDropsCollected checks that entries go with their objects: otherwise long
// tests would run out of memory.
func TestReleaseTrackerDropsCollected(t *testing.T) {
	entries := func() int {
		releasedBuffers.mu.Lock()
		defer releasedBuffers.mu.Unlock()
		return len(releasedBuffers.location)
	}
	for range 1000 {
		Get().Release()
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return entries() < 100
	}, 20*time.Second, time.Millisecond)
}
