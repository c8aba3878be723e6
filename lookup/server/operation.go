package server

import (
	"context"

	"github.com/hitline/hitline/netproto"
)

// How each kind of request is served. The functions are in lookups.go, masks.go, explain.go, changes.go, stat.go,
// instance.go, pool_request.go and authenticate.go.

// operation says how a kind of request is served. What frames it has is in package netproto, and
// which permission it needs in package access.
type operation struct {
	inline     inlineKind
	noPool     bool // it is served without a pool, too
	lookup     bool // it looks up hashes: those that can change its answer are enough
	hit        bool // its reply has a hit
	from       bool // it has a start
	callsStore bool // if the pool is over a store
	coalesced  bool // its calls of a store may serve others, too: the service makes their context
	changes    bool // it takes effect after what came before it, and before what follows
	// run serves a job and sets its reply. A worker calls it. nil: there is nothing to do there.
	run func(ctx context.Context, j *job) error
	// apply applies to the connection what run has found. The event loop calls it. nil: nothing.
	apply func(s *session, j *job) error
	// replyBytes bounds the bytes of a reply that may have to wait for others. nil: there are few.
	replyBytes func(j *job) int
}

// inlineKind says when a request is answered as it arrives: see inline.go.
type inlineKind uint8

const (
	never inlineKind = iota
	overIndex
	always
)

// operations says how each kind is served. It is filled in operations.go.
var operations [netproto.NumTags]operation
