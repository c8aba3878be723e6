//go:build race || hitline_debug

package bufpool

import (
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// panicText returns what f panics with, as text.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		text, _ = recover().(string)
		require.NotEmpty(t, text, "no panic")
	}()
	f()
	return ""
}

// requirePlaces checks that a panic text names two places in this file that are not the
// same.
func requirePlaces(t *testing.T, text string) {
	t.Helper()
	places := regexp.MustCompile(`debug_on_test\.go:\d+`).FindAllString(text, -1)
	require.Len(t, places, 2, text)
	require.NotEqual(t, places[0], places[1], text)
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

	// Nor does anybody else get the array and write sense over it.
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
	requirePlaces(t, text)

	w := GetWords(1)
	w.Release()
	text = panicText(t, w.Release)
	require.Contains(t, text, "bufpool: second Release of a *bufpool.Words")
	requirePlaces(t, text)
}

// TestLedgerForgets checks that the memory of past releases goes with the objects, or long
// tests would run out of memory.
func TestLedgerForgets(t *testing.T) {
	entries := func() int {
		releasedBuffers.mu.Lock()
		defer releasedBuffers.mu.Unlock()
		return len(releasedBuffers.at)
	}
	for range 1000 {
		Get().Release()
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return entries() < 100
	}, 20*time.Second, time.Millisecond)
}
