package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/requesterror"
)

// storeError is the error of a failed call: one line without secrets, and the sentinels that
// it wraps. It wraps none of the driver's errors: they may repeat what was sent.
type storeError struct {
	text  string
	kinds []error
}

func (e *storeError) Error() string   { return e.text }
func (e *storeError) Unwrap() []error { return e.kinds }

// explain turns an error of the driver or the server into a storeError. began is when the call began.
func (b *Backend) explain(ctx context.Context, began time.Time, err error, writes bool) error {
	text, kinds := b.diagnose(ctx, began, err, writes)
	text = kinds[0].Error() + ": " + b.Name() + ": " + text
	if b.endpoint.password != "" {
		text = strings.ReplaceAll(text, b.endpoint.password, "***")
	}
	return &storeError{text: text, kinds: kinds}
}

// diagnose returns the text of an error and the sentinels that it counts as. writes tells
// whether the call changes the store.
func (b *Backend) diagnose(ctx context.Context, began time.Time, err error, writes bool) (text string, kinds []error) {
	unavailable := []error{backend.ErrUnavailable}
	var conn *connError
	var reply goredis.Error
	switch {
	case errors.Is(err, goredis.ErrClosed):
		return "it is closed", unavailable
	case ctxerr.Of(ctx) != nil:
		text = fmt.Sprintf("%s: %v", b.endpoint, ctxerr.Late(ctxerr.Of(ctx), began, "no answer"))
		if last := b.dialer.lastError.Load(); last != nil {
			text += "; the latest attempt to connect: " + last.text
		}
		return text, append(unavailable, ctxerr.Of(ctx))
	case errors.As(err, &conn) && conn.notRedis:
		return conn.text, []error{backend.ErrMismatch, backend.ErrReply}
	case errors.As(err, &conn) && conn.mismatch:
		return conn.text, []error{backend.ErrMismatch, backend.ErrUnavailable}
	case errors.As(err, &conn) && conn.badReply:
		return conn.text, []error{backend.ErrReply}
	case errors.As(err, &conn):
		return conn.text, unavailable
	case errors.Is(err, requesterror.ErrFault):
		return b.endpoint.String() + ": " + err.Error(), append(unavailable, requesterror.ErrFault)
	case errors.Is(err, backend.ErrReply):
		return strings.TrimPrefix(err.Error(), backend.ErrReply.Error()+": "), []error{backend.ErrReply}
	case errors.Is(err, goredis.Nil):
		return b.endpoint.String() + ": the server replied null to a command that has no such reply", []error{backend.ErrReply}
	case errors.As(err, &reply):
		return b.diagnoseReply(reply.Error(), writes)
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return b.endpoint.String() + ": all connections are in use, for too long", unavailable
	case errors.Is(err, io.EOF):
		return b.endpoint.String() + ": the connection was lost", unavailable
	}
	text = rootCause(err)
	for _, start := range []string{"can't parse", "invalid", "unexpected", "the length", "got"} {
		if strings.HasPrefix(text, "redis: "+start) { // texts of the driver
			return b.endpoint.String() + ": the server is not a Redis: " + strings.TrimPrefix(text, "redis: "), []error{backend.ErrMismatch, backend.ErrReply}
		}
	}
	return b.endpoint.String() + ": " + text, unavailable
}

// diagnoseReply is diagnose for an error reply of the server.
func (b *Backend) diagnoseReply(reply string, writes bool) (text string, kinds []error) {
	unavailable, mismatch := []error{backend.ErrUnavailable}, []error{backend.ErrMismatch, backend.ErrUnavailable}
	at := b.endpoint.String() + ": "
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(reply, part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("NOAUTH"):
		return at + "the server wants a password: redis://:PASSWORD@host or redis://USER:PASSWORD@host", mismatch
	case has("WRONGPASS", "invalid password", "invalid username-password"):
		return at + "the server refuses this user or password", mismatch
	case has("without any password configured"):
		return at + "the URL has a password and the server wants none", mismatch
	case has("NOPERM") && writes:
		return at + "the user may not: " + reply, []error{backend.ErrReadOnly}
	case has("NOPERM"):
		return at + "the user may not: " + reply, mismatch
	case has("READONLY"):
		return at + "the server is a replica and takes no changes: name the primary", []error{backend.ErrReadOnly}
	case writes && has("OOM ", "MISCONF", "NOREPLICAS"): // the server still answers lookups
		return at + "the server takes no changes now: " + reply, []error{backend.ErrReadOnly}
	case has("cluster support disabled"):
		return at + "the server is not part of a cluster: use redis:// instead of redis-cluster://", mismatch
	case !b.endpoint.cluster && has("MOVED ", "CROSSSLOT", "ASK "):
		return at + "the server is a node of a cluster: use redis-cluster:// instead of redis://", mismatch
	case has("unknown command"):
		return at + "the server is too old or a sentinel: " + reply, mismatch
	case has("DB index is out of range"):
		return at + "the server has no such database: " + reply, mismatch
	case has("LOADING", "DOWN", "TRYAGAIN", "MOVED ", "ASK ", "OOM ", "MISCONF", "NOREPLICAS", "BUSY", "max number of clients"):
		return at + reply, unavailable
	}
	return at + reply, []error{backend.ErrReply}
}
