package server

import "errors"

var (
	// ErrTooManyHashes refuses a lookup of more hashes than Limits.MaxHashes.
	ErrTooManyHashes = errors.New("more hashes than this server takes in one lookup")
	// ErrInFlight refuses a request while Limits.MaxInFlight others of its
	// connection wait for the backend.
	ErrInFlight = errors.New("too many requests of this connection wait for the backend")
	// ErrBusy refuses a request for which RemoteConfig.Queue or MaxBytes leaves no
	// room.
	ErrBusy = errors.New("too many requests wait for the backend")
	// ErrConfig refuses a Config.
	ErrConfig = errors.New("server: bad configuration")
	// ErrServerClosed is returned by Start after Shutdown was called.
	ErrServerClosed = errors.New("server: closed")
	// ErrStopped says that the server stopped, or did not start, without Shutdown having
	// been called.
	ErrStopped = errors.New("server: stopped")
)
