package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// recoverHook turns the driver's panics into errors. The driver allocates as many answers as
// a server announces, and panics if they are too many. The rest of that reply stays unread
// on an unknown connection, so the hook makes all open connections unusable.
type recoverHook struct{ dialer *dialer }

// DialHook implements goredis.Hook; it returns next.
func (h recoverHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook recovers panics of one command, including those while it connects.
func (h recoverHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = h.fail(p, cmd)
			}
		}()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook recovers panics of a pipeline. In a cluster it runs on one goroutine
// for each node.
func (h recoverHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = h.fail(p, cmds...)
			}
		}()
		return next(ctx, cmds)
	}
}

// fail makes p the error of all commands.
func (h recoverHook) fail(p any, cmds ...goredis.Cmder) error {
	h.dialer.generation.Add(1)
	err := fmt.Errorf("%w: the server's answer cannot be read: %v", backend.ErrReply, p)
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
