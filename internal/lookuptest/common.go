package lookuptest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/simd"
)

// Patience is the timeout of every wait in a test.
const Patience = 20 * time.Second

// Blocks16 is a pool of one full-attention group of 16 tokens on one rank.
var Blocks16 = coordinator.Pool{HashBlockSize: 16}

// WindowPool has a group that no mask makes sparse, one that is not kept in the store, and one of
// a window.
var WindowPool = coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 64, HashLen: 32, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 64},
	{Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 17, BoundedReplay: true},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
}}

// Main runs the tests of a package that opens a server, with the kernel that the
// environment names. It fails if a goroutine is left running.
func Main(m *testing.M) {
	if err := simd.ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m, EngineLeaks...)
}

// EngineLeaks are the goroutines that gnet keeps for the whole process: a pool of workers
// and its ticker.
var EngineLeaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
	goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
}

// Eventually waits until a condition is true. what is the message if it is not in time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, Patience, time.Millisecond, what)
}

// Chain returns n hashes of hashLen bytes, joined, of the chain that seed determines.
func Chain(seed string, n, hashLen int) []byte {
	var b []byte
	prev := sha256.Sum256([]byte(seed))
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint32(prev[:], uint32(i)))
		b = append(b, append(prev[:], prev[:]...)[:hashLen]...)
	}
	return b
}
