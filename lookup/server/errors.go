package server

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// Errors of a Server's methods. Match them with errors.Is.
var (
	// ErrServerClosed is returned by Start after Shutdown was called.
	ErrServerClosed = errors.New("the server is closed")
	// ErrStopped says that the server stopped by itself, or did not start: see Server.Err.
	ErrStopped = errors.New("the server has stopped")
	// ErrNotReady says that clients should use another server: see Server.Ready. The reason
	// follows it.
	ErrNotReady = errors.New("not ready")
)

// Errors of requests. Peers get their texts.
var (
	// errHashLen refuses hashes that have not the length that the pool was described with.
	errHashLen = errors.New("hashes of another length than the pool's")
	// errTooManyHashes refuses a lookup_from with more hashes than its tokens have.
	errTooManyHashes = errors.New("too many hashes")
	// errNoPool refuses a request about blocks on a connection without a pool.
	errNoPool = errors.New(
		"no pool: name one of those that stat lists, describe the engine's with a pool request, or configure it at the server",
	)
	// errBusy refuses a request for which there is no room now.
	errBusy = errors.New("the server is busy, try again")
	// errNoMemory refuses a request because of what all connections hold.
	errNoMemory = fmt.Errorf("%w: requests hold as much memory as limits.max_memory allows", errBusy)
)

// errNotAuthenticated refuses an auth request. Peers get its text, and one of those below.
var errNotAuthenticated = errors.New("not authenticated")

// notAllowedError refuses a request without permission.
type notAllowedError struct {
	tag     netproto.Tag
	allowed access.Permissions
	name    string // of the credential, empty for an anonymous peer
}

// Error names what the peer may do.
func (e *notAllowedError) Error() string {
	may := "nothing"
	if e.allowed != 0 {
		may = e.allowed.String()
	}
	return fmt.Sprintf("not allowed: %v; this connection may: %s", e.tag, may)
}

// limitError refuses a request that is too large.
type limitError struct {
	text  string
	limit int64
}

// Error says what is too large.
func (e *limitError) Error() string { return e.text }
