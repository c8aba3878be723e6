package api

import "github.com/hitline/hitline/internal/fielderror"

// ErrConfig is wrapped by the errors of every configuration that is not valid: of a service, a server, a
// store, a router or a source of events. Those of a pool's description are of package coordinator.
var ErrConfig = fielderror.ErrConfig
