package client

import "errors"

// What the errors of calls wrap.
var (
	// ErrRefused says that the server answered 00: it could read the request and
	// not serve it.
	ErrRefused = errors.New("client: refused by the server")
	// ErrConnect says that the server could not be reached or that the connection
	// was lost; the request may or may not have taken effect.
	ErrConnect = errors.New("client: no connection")
	// ErrNoAnswer says that no answer came before the call's time was up or its context
	// ended, though no connection failed. The request may not have been sent, if all
	// connections were in use or the context had ended before. If it was sent, it may
	// have taken effect, or may still do so.
	ErrNoAnswer = errors.New("client: no answer")
	// ErrReply says that the server's reply is not one of this protocol.
	ErrReply = errors.New("client: bad reply")
	// ErrRequest refuses arguments that cannot be sent.
	ErrRequest = errors.New("client: bad request")
	// ErrFailedOpen says that a lookup was not answered and counts as a miss, as
	// WithFailOpen asks for. It comes with the error that says why.
	ErrFailedOpen = errors.New("client: not answered, taken for a miss")
	// ErrPending refuses an asynchronous lookup for which WithPending leaves no
	// room.
	ErrPending = errors.New("client: too many lookups are pending")
)
