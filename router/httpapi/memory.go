package httpapi

import (
	"net/http"
	"sync"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/cpushare"
)

// memory bounds what requests hold: what is decoded of their bodies, as they arrive, the hashes of their tokens, and their
// replies until they are sent. A peer or credential takes no more of it than it leaves to others. Safe for concurrent use.
type memory struct {
	admission *admission.Admission

	mu   sync.Mutex
	held map[cpushare.Key]int64 // bytes; none is 0
}

// DefaultMaxMemory is how many bytes requests may hold by default. One of them may hold three eighths of it: enough for
// the lists of the largest body, while they grow.
const DefaultMaxMemory = 80 << 20

func newMemory(maxBytes int64) *memory {
	return &memory{admission: admission.New(maxBytes), held: map[cpushare.Key]int64{}}
}

// lease is what one request holds. It belongs to the request's goroutine.
type lease struct {
	memory       *memory
	key          cpushare.Key
	small, large int64 // bytes: the first admission.SmallBytes of a request are small
	used         int64 // of these, by what is decoded of the body
}

// exchange makes the request hold bytes of the body in place of others, which are dropped then. It fails as hold does.
func (l *lease) exchange(before, after int64) error {
	if err := l.hold(l.used + after); err != nil {
		return err
	}
	l.used += after - before
	return nil
}

// hold makes the request hold n bytes, which it grows to in steps and does not shrink from. It returns a refusal if that
// is too much.
func (l *lease) hold(n int64) error {
	if n <= l.small+l.large {
		return nil
	}
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	limit := l.memory.admission.MaxRequest()
	if err := l.memory.check(n); err != nil {
		return err
	}
	if l.small == 0 && !l.add(&l.small, admission.SmallBytes) {
		return errBusy
	}
	if more := n - l.small - l.large; more > 0 && !l.add(&l.large, min((more+step-1)/step*step, limit-l.small-l.large)) {
		return errBusy
	}
	return nil
}

// check returns a refusal if no request may hold n bytes.
func (m *memory) check(n int64) error {
	if limit := m.admission.MaxRequest(); n > limit {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the request needs more than %d bytes of memory (see limits.max_memory)", limit)
	}
	return nil
}

// step is by how many bytes a request grows at least, beyond what is small.
const step = 256 << 10

// errBusy refuses a request for which there is no memory.
var errBusy = refuse(http.StatusServiceUnavailable, "busy", "other requests take the memory for requests; try again")

// add adds n bytes to a part of the lease. memory.mu is held.
func (l *lease) add(part *int64, n int64) bool {
	m := l.memory
	if !m.admission.Admit(n, part == &l.small, m.held[l.key]) {
		return false
	}
	m.held[l.key] += n
	*part += n
	return true
}

// release makes the request hold nothing.
func (l *lease) release() {
	m := l.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.admission.Free(l.small, true)
	m.admission.Free(l.large, false)
	if m.held[l.key] -= l.small + l.large; m.held[l.key] == 0 {
		delete(m.held, l.key)
	}
	l.small, l.large = 0, 0
}
