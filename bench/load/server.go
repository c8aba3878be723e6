package load

import (
	"context"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/process"
)

// ServerOptions says how to start a server to put load on.
type ServerOptions struct {
	Hitline     string        // path of the program
	BlockTokens int           // of its one full-attention group; 0: as Config or Groups say, or the default
	Config      string        // path of a configuration file; may be empty
	Groups      string        // of the pool, as the configuration has them, in YAML; may be empty
	Entries     int           // hashes that it must hold without evicting any
	Connections int           // that it must take
	Loops       int           // event loops; 0: its default
	Cores       []int         // that it runs on; nil leaves that to the system
	Timeout     time.Duration // longest wait until it is ready
}

// StartServer starts a hitline on loopback and waits until it is ready. What it is, beside the
// options, is its defaults: variables that configure hitline are not passed on. The caller stops
// it. An error wraps [measure.ErrLost].
func StartServer(ctx context.Context, o ServerOptions) (*process.Process, error) {
	more := []string{"--backend", "memory"}
	if o.Config != "" {
		more = append(more, "--config", o.Config)
	}
	if o.Loops > 0 {
		more = append(more, "--loops", strconv.Itoa(o.Loops))
	}
	cmd := process.Hitline(o.Hitline, o.BlockTokens, process.HitlineBound(o.Entries), more...)
	if o.Groups != "" {
		cmd.Env = append(cmd.Env, "HITLINE_POOL_GROUPS="+o.Groups)
	}
	cmd.Env = append(cmd.Env, process.ConnectionLimit(o.Connections))
	return process.Start(ctx, cmd, process.Options{Cores: o.Cores, Timeout: o.Timeout})
}
