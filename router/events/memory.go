package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/internal/admission"
)

// What the sources of a router make it hold, besides what their Holders have.
const (
	// SourceBytes is what a source takes at most by itself, in bytes: the buffers of its connection and of a replay, the
	// hashes of a batch of 64 KiB, names, and the texts of its configuration.
	SourceBytes = 768 << 10
	// copiesBytes is what all sources together take to count copies.
	copiesBytes = 64 << 20
	// minBatchBytes and payloadsAtOnce bound larger batches of all sources together, see MemoryBytes.
	minBatchBytes  = 64 << 20
	payloadsAtOnce = 8
	// memoryPause is how often a batch that waits looks for memory. Usual batches have some milliseconds of it.
	memoryPause = 10 * time.Millisecond
)

// MemoryBytes returns the bound of a Memory for payloads of at most maxPayload bytes; 0: DefaultMaxPayload.
func MemoryBytes(maxPayload int) int64 { return batchBytes(maxPayload) + copiesBytes }

// batchBytes is enough for the batch of a source and one of its replay, each counted twice, while as much is left.
func batchBytes(maxPayload int) int64 {
	return max(minBatchBytes, payloadsAtOnce*int64(cmp.Or(maxPayload, DefaultMaxPayload)+maxEnvelope))
}

// Memory bounds what the sources that share it take beyond SourceBytes each: batches of more than 64 KiB and their
// hashes, and counts of copies. Safe for concurrent use.
type Memory struct{ batches, copies *admission.Admission }

// NewMemory returns a Memory for payloads of at most maxPayload bytes; 0: DefaultMaxPayload.
func NewMemory(maxPayload int) *Memory {
	return &Memory{batches: admission.New(batchBytes(maxPayload)), copies: admission.New(copiesBytes)}
}

// errMemory is the error of a batch for which there is no memory.
var errMemory = errors.New("no memory for a large batch")

// share is what one source has of the bytes that all share. It belongs to one goroutine.
type share struct {
	of    *admission.Admission
	taken int64
}

// take takes n more bytes, unless the source has more than it leaves then.
func (s *share) take(n int64) bool {
	fits := s.of.Add(n, true, s.taken+n)
	if fits {
		s.taken += n
	}
	return fits
}

// wait takes n more bytes, and waits for them. It fails with errMemory after a time, or with the error of ctx.
func (s *share) wait(ctx context.Context, n int64, timeout time.Duration) error {
	if s.taken+n > s.of.Max()-s.taken-n {
		return fmt.Errorf("%w: it needs %d bytes, and the source may take half of %d; see max_payload", errMemory, n, s.of.Max())
	}
	for end := time.Now().Add(timeout); !s.take(n); sleep(ctx, memoryPause) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !time.Now().Before(end):
			return fmt.Errorf("%w: it needs %d of the %d bytes that all sources share, and waited %v for them; see max_payload",
				errMemory, n, s.of.Max(), timeout)
		}
	}
	return nil
}

// release gives n bytes back.
func (s *share) release(n int64) {
	s.taken -= n
	s.of.Free(n, true)
}

// batchMemory is what the batch of one connection takes, or what decoding it takes beyond that. It belongs to the goroutine
// of its source.
type batchMemory struct {
	ctx     context.Context
	share   *share
	release func() // of the processor, before a wait
	timeout time.Duration
	taken   int64
	allowed int64         // what decoding may take without it
	waited  time.Duration // for all batches
}

// raise takes what is missing to n bytes.
func (m *batchMemory) raise(n int64) error {
	if n <= m.taken {
		return nil
	}
	start := time.Now()
	m.release()
	err := m.share.wait(m.ctx, n-m.taken, m.timeout)
	m.waited += time.Since(start)
	if err == nil {
		m.taken = n
	}
	return err
}

// reserve is zmtp.Config.Reserve. A batch counts twice: it is copied as it grows, and later its hashes are.
func (m *batchMemory) reserve(bytes int) error { return m.raise(2 * int64(bytes)) }

// free gives everything back, after a batch.
func (m *batchMemory) free() {
	if m.taken > 0 {
		m.share.release(m.taken)
		m.taken = 0
	}
}

// decode is Decoder.reserve. What a batch may take is there already; more takes one whose hashes are small integers.
func (m *batchMemory) decode(bytes int) error { return m.raise(int64(bytes) - m.allowed) }

func (f *Follower) newBatchMemory(ctx context.Context) *batchMemory {
	return &batchMemory{ctx: ctx, share: &f.batches, release: f.release, timeout: f.cfg.Timeout}
}
