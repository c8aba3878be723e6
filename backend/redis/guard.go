package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// guard keeps the driver's panics from ending the process: it makes room for as many
// answers as a server announces, however many. Where a reply ends is not known then, so
// no connection is used any longer.
type guard struct{ dialer *dialer }

// DialHook does nothing.
func (g guard) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook guards one command, with the making of a connection for it.
func (g guard) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = g.panicked(p, cmd)
			}
		}()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook guards a pipeline, a cluster's on the goroutine of each node.
func (g guard) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = g.panicked(p, cmds...)
			}
		}()
		return next(ctx, cmds)
	}
}

func (g guard) panicked(p any, cmds ...goredis.Cmder) error {
	g.dialer.spoilt.Add(1)
	err := fmt.Errorf("%w: the server's answer cannot be read: %v", backend.ErrReply, p)
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
