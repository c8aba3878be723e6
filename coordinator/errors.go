package coordinator

import (
	"errors"
)

// The sentinels of errors that the reference raises too, as the exception class that the
// conformance vectors name. Match with errors.Is: every error of New and of a Coordinator
// wraps a sentinel. Clients read the texts of errors about a request: they have the words of
// docs/protocol.md.
var (
	// ErrPrecondition is an AssertionError: a call or a configuration that the
	// reference refuses.
	ErrPrecondition = errors.New("precondition failed")

	// ErrIndexOutOfRange is an IndexError: a rule reads a hash beyond those of the
	// request, or an answer beyond those of the store.
	ErrIndexOutOfRange = errors.New("index out of range")

	// ErrAnswerCount is a ValueError: the store did not return one answer for each
	// key.
	ErrAnswerCount = errors.New("wrong number of store answers")

	// ErrNegativeLength is a ValueError too: a negative length in a pool with full
	// attention.
	ErrNegativeLength = errors.New("negative length")
)

var (
	// ErrInvalidPool is wrapped by every error of New. Where the reference
	// refuses the configuration too, ErrPrecondition is wrapped as well.
	ErrInvalidPool = errors.New("invalid pool")

	// ErrInvalidPresence is a Presence that does not fit the pool: a mistake of the
	// caller, not of the request.
	ErrInvalidPresence = errors.New("invalid presence")
)
