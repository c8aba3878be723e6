package server

import (
	"context"
	"sync/atomic"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/held"
)

// shared is what all sessions of a server use. It knows none of them.
type shared struct {
	backend       *lookup.SharedBackend // nil over the memory index
	pools         *pools
	accounts      *accounting
	limits        atomic.Pointer[Limits] // in effect
	ctx           context.Context        // of jobs; ends when the server stops
	workers       workerPools
	renewer       *lookup.Renewer       // nil over the memory index
	admission     *held.Admission       // of what connections hold
	memoryAccount *lookup.MemoryAccount // of the keys of a store, and what is remembered of it
	peers         *peerLog
	loops         eventLoops
	instance      api.Instance         // without its limits
	pong          atomic.Pointer[pong] // for connections without a pool, nil before the first
	phase         currentPhase

	connections, inFlight, acceptErrors atomic.Int64 // reported by Stat
}

// newEventLoop returns a loop that is woken by a byte at a socket.
func (s *shared) newEventLoop(wakeFD int) *eventLoop {
	return &eventLoop{
		metrics: new(loopMetrics),
		limits:  &s.limits, admission: s.admission, memoryAccount: s.memoryAccount, recorder: s.accounts.NewRecorder(), wakeFD: wakeFD,
	}
}
