package coordinator

import "errors"

// One sentinel stands for each exception class that the reference raises; the
// conformance vectors name the classes. Match with errors.Is: every returned
// error wraps its sentinel and adds what was wrong and where.
var (
	// ErrPrecondition is an AssertionError: a call or a configuration that the
	// reference refuses.
	ErrPrecondition = errors.New("coordinator: precondition failed")

	// ErrIndexOutOfRange is an IndexError: the rule had to read a hash (or an
	// answer) behind the end of what the request brought.
	ErrIndexOutOfRange = errors.New("coordinator: index out of range")

	// ErrAnswerCount is a ValueError: the store did not give one answer a key.
	ErrAnswerCount = errors.New("coordinator: wrong number of store answers")

	// ErrNegativeLength is a ValueError too: the full attention rule was to look at
	// a negative number of tokens.
	ErrNegativeLength = errors.New("coordinator: negative length")

	// ErrNotImplemented is a NotImplementedError: something that the configured
	// revision has no rule for.
	ErrNotImplemented = errors.New("coordinator: not implemented")
)

var (
	// ErrInvalidPool is wrapped by every error of New. Where the reference
	// refuses the configuration too, ErrPrecondition is wrapped as well.
	ErrInvalidPool = errors.New("coordinator: invalid pool")

	// ErrInvalidPresence reports a Presence that does not fit the pool, a
	// mistake of the caller rather than of the request.
	ErrInvalidPresence = errors.New("coordinator: invalid presence")
)
