package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
)

// Config configures a Handler.
type Config struct {
	Service *router.Service
	// Authorize says what the sender of a request may do, before its body is read. An error refuses what not everybody
	// may do, with status 401 and the text of the error. nil: everybody may do everything. See ByRules.
	Authorize func(*http.Request) (Access, error)
	// Local says that the listener is on loopback. Hosts are names by which clients reach it. If it is on loopback or
	// there are Hosts, requests for other hosts than these, localhost and IP addresses are refused: a page of another
	// site has made them, whose name resolves to this machine.
	Local  bool
	Hosts  []string
	limits *limits // of tests; nil: defaultLimits
	// Loaded reports whether the Service has what its peers hold. Before, only /health, /ready and /openapi.yaml are
	// answered. It must be safe for concurrent use. nil: always.
	Loaded func() bool
	// Ready returns what the server still waits for, nil if for nothing. It must be safe for concurrent use. nil:
	// always ready.
	Ready  func() error
	Logger *slog.Logger // of registrations and of what is refused; nil discards
	// MaxMemory bounds the bytes that requests and replies hold; 0: DefaultMaxMemory. What does not fit is refused.
	MaxMemory int64
}

// Access is what the sender of a request may do.
type Access struct {
	Name        string // of the credential, for logs; "" without one
	Permissions access.Permissions
	// Pools are those that the sender is bound to, see access.Credential. nil: every model. Otherwise only models
	// with one of these pools exist for the sender.
	Pools []string
	// Admin may register and unregister sources, and read dumps.
	Admin bool
}

// limits bound what requests take.
type limits struct {
	body    int64         // bytes, at most maxBody
	arrival time.Duration // in which a body must arrive
	reply   time.Duration // for an answer, the store's included, and again for sending it
}

// maxBody is enough for maxTokens of 19 digits, or maxHashes of 32 bytes in hex.
const maxBody = 20 << 20

var defaultLimits = limits{maxBody, 10 * time.Second, 10 * time.Second}
