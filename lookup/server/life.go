package server

import "sync/atomic"

// life is where a connection is in its life, and why it ends:
//
//	       the peer sends a FIN and waits for replies
//	open ───────────────────────────────────────────► halfClosed
//	 │  │                                               │
//	 │  │ fail, end                                     │ fail, end
//	 │  ▼                                               │
//	 │ ending ◄─────────────────────────────────────────┘
//	 │  │                    no reply is written any more
//	 ▼  ▼     (halfClosed, too, goes straight to closed when the server stops)
//	closed                   its event loop has released what it holds
//
// Its event loop calls conn.fail, and any goroutine may call end. The first has the reason. Jobs may outlive it: what
// they have found is dropped.
type life struct {
	word atomic.Uint32 // connState, and closeReason shifted by stateBits
}

// connState is where a connection is in its life.
type connState uint32

const (
	stateOpen connState = iota
	stateHalfClosed
	stateEnding
	stateClosed

	stateBits = 8
)

func (l *life) state() connState { return connState(l.word.Load() & (1<<stateBits - 1)) }

// reason returns why the connection ends, notClosed before that is decided.
func (l *life) reason() closeReason { return closeReason(l.word.Load() >> stateBits) }

// isEnding reports whether no reply is written any more.
func (l *life) isEnding() bool { return l.state() >= stateEnding }

// enter moves the connection on to a later state, and returns false if it was there. The reason is set once.
func (l *life) enter(state connState, reason closeReason) bool {
	for {
		life := l.word.Load()
		if connState(life&(1<<stateBits-1)) >= state {
			return false
		}
		if l.word.CompareAndSwap(life, uint32(state)|max(life>>stateBits, uint32(reason))<<stateBits) {
			return true
		}
	}
}

// end makes the connection end for a reason, and returns false if it did before. Its event loop is to be told.
func (l *life) end(reason closeReason) bool { return l.enter(stateEnding, reason) }
