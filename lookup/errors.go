package lookup

import "errors"

var (
	// ErrNotBuilt refuses a configuration that this version does not serve.
	ErrNotBuilt = errors.New("lookup: not built yet")
	// ErrPlace refuses a store or an evict for a group or rank outside the pool.
	ErrPlace = errors.New("place is outside the configured pool")
	// ErrTooManyHashes refuses a lookup of more hashes than Limits.MaxHashes.
	ErrTooManyHashes = errors.New("more hashes than this server takes in one lookup")
	// ErrInFlight refuses a request while Limits.MaxInFlight others of its
	// connection wait for the backend.
	ErrInFlight = errors.New("too many requests of this connection wait for the backend")
	// ErrBusy refuses a request for which RemoteConfig.Queue or MaxBytes leaves no
	// room.
	ErrBusy = errors.New("too many requests wait for the backend")
	// ErrTooManyKeys refuses a request whose keys at the backend take more memory than
	// RemoteConfig.MaxKeyBytes allows one.
	ErrTooManyKeys = errors.New("too many keys: ask with fewer hashes, or configure fewer ranks and groups")
	// ErrConfig refuses a ServerConfig.
	ErrConfig = errors.New("lookup: bad server configuration")
	// ErrServerClosed says that the server was shut down.
	ErrServerClosed = errors.New("lookup: server closed")
	// ErrStopped says that the server's engine stopped without being asked to.
	ErrStopped = errors.New("lookup: event loops stopped")
)

// Errors of Client and AsyncClient.
var (
	// ErrRefused says that the server answered 00: it could read the request and
	// not serve it.
	ErrRefused = errors.New("lookup: refused by the server")
	// ErrConnect says that the server could not be reached or that the connection
	// was lost; the request may or may not have taken effect.
	ErrConnect = errors.New("lookup: no connection")
	// ErrNoAnswer says that there was a connection, and no answer before the call's
	// time was up or its context ended: the server hangs, or is slow. The request may
	// or may not have taken effect, and may still do so.
	ErrNoAnswer = errors.New("lookup: no answer")
	// ErrReply says that the server's reply is not one of this protocol.
	ErrReply = errors.New("lookup: bad reply")
	// ErrRequest refuses arguments that cannot be sent.
	ErrRequest = errors.New("lookup: bad request")
	// ErrFailedOpen says that a lookup was not answered and counts as a miss, as
	// WithFailOpen asks for. It comes with the error that says why.
	ErrFailedOpen = errors.New("lookup: not answered, taken for a miss")
	// ErrPending refuses an asynchronous lookup for which WithPending leaves no
	// room.
	ErrPending = errors.New("lookup: too many lookups are pending")
)
