//go:build race || hitline_debug

package bufpool

import (
	"fmt"
	"runtime"
	"sync"
	"weak"
)

// Debug says whether this build has the traps for violations of ownership: those with the
// race detector or with the tag hitline_debug have them.
const Debug = true

// poison is what released memory is overwritten with, in every byte. A length or a number
// read from it is absurd, and it is easy to see in a dump.
const poison = 0xCC

// ledger remembers which objects have been released, and where. It does not keep them
// alive: an entry goes when its object is collected. This works as no object is lent again
// once it is released, so an entry never becomes wrong.
type ledger[T any] struct {
	mu sync.Mutex
	at map[weak.Pointer[T]]string // file and line of the Release
}

var (
	releasedBuffers ledger[Buffer]
	releasedWords   ledger[Words]
)

// add enters p, on behalf of a method whose caller is to blame. It panics if p has been
// entered before.
func (l *ledger[T]) add(p *T) {
	where := "an unknown place"
	if _, file, line, ok := runtime.Caller(2); ok {
		where = fmt.Sprintf("%s:%d", file, line)
	}
	key := weak.Make(p)

	l.mu.Lock()
	defer l.mu.Unlock()
	if first, twice := l.at[key]; twice {
		panic(fmt.Sprintf("bufpool: second Release of a %T at %s, the first was at %s", p, where, first))
	}
	if l.at == nil {
		l.at = make(map[weak.Pointer[T]]string)
	}
	l.at[key] = where
	runtime.AddCleanup(p, l.remove, key)
}

// remove forgets an object that has been collected.
func (l *ledger[T]) remove(key weak.Pointer[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, key)
}

// poisonBytes overwrites memory that has been released.
func poisonBytes(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// poisonWords overwrites memory that has been released.
func poisonWords(w []uint64) {
	for i := range w {
		w[i] = poison * 0x0101010101010101
	}
}
