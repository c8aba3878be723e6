//go:build race

package bufpool

import (
	"fmt"
	"runtime"
	"sync"
	"weak"
)

// Debug says whether this build has the traps for violations of ownership: those with the
// race detector have them.
const Debug = true

// poison is what released memory is overwritten with, in every byte. A length or a number
// read from it is absurd, and it is easy to see in a dump.
const poison = 0xCC

// releaseTracker records where each object was released. It does not keep objects alive: an
// entry is dropped when its object is collected. An entry stays true until then, because a
// debug build never reuses a released object.
type releaseTracker[T any] struct {
	mu       sync.Mutex
	location map[weak.Pointer[T]]string // "file:line" of the Release call; guarded by mu
}

var (
	releasedBuffers releaseTracker[Buffer]
	releasedWords   releaseTracker[Words]
)

// record adds p with the location of the call to Release, two frames up. It panics if p is
// already recorded.
func (l *releaseTracker[T]) record(p *T) {
	where := "an unknown line"
	if _, file, line, ok := runtime.Caller(2); ok {
		where = fmt.Sprintf("%s:%d", file, line)
	}
	key := weak.Make(p)

	l.mu.Lock()
	defer l.mu.Unlock()
	if first, twice := l.location[key]; twice {
		panic(fmt.Sprintf("bufpool: second Release of a %T at %s, the first was at %s", p, where, first))
	}
	if l.location == nil {
		l.location = make(map[weak.Pointer[T]]string)
	}
	l.location[key] = where
	runtime.AddCleanup(p, l.drop, key)
}

// drop deletes the entry of an object that was collected.
func (l *releaseTracker[T]) drop(key weak.Pointer[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.location, key)
}

// poisonBytes overwrites b with poison.
func poisonBytes(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// poisonWords overwrites w with poison.
func poisonWords(w []uint64) {
	for i := range w {
		w[i] = poison * 0x0101010101010101
	}
}
