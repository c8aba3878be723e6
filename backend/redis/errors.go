package redis

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// storeError is a failed call: one line without secrets, and the errors that it
// counts as. It keeps none of the driver's errors, which may repeat what was sent.
type storeError struct {
	text string
	is   []error
}

func (e *storeError) Error() string   { return e.text }
func (e *storeError) Unwrap() []error { return e.is }

// explain makes one line of what the driver or a server says.
func (b *Backend) explain(ctx context.Context, err error, writes bool) error {
	text, kinds := b.diagnose(ctx, err, writes)
	text = kinds[0].Error() + ": " + b.Name() + ": " + text
	if b.at.password != "" {
		text = strings.ReplaceAll(text, b.at.password, "***")
	}
	return &storeError{text: text, is: kinds}
}

func (b *Backend) diagnose(ctx context.Context, err error, writes bool) (text string, kinds []error) {
	unavailable := []error{backend.ErrUnavailable}
	var conn *connError
	var reply goredis.Error
	switch {
	case errors.Is(err, goredis.ErrClosed):
		return "it is closed", unavailable
	case ended(ctx) != nil:
		text = b.at.String() + ": " + ended(ctx).Error()
		if last := b.dialer.last.Load(); last != nil {
			text += "; the latest attempt to connect: " + last.text
		}
		return text, append(unavailable, ended(ctx))
	case errors.As(err, &conn) && conn.reply:
		return conn.text, []error{backend.ErrMismatch, backend.ErrReply}
	case errors.As(err, &conn) && conn.mismatch:
		return conn.text, []error{backend.ErrMismatch, backend.ErrUnavailable}
	case errors.As(err, &conn):
		return conn.text, unavailable
	case errors.Is(err, backend.ErrReply):
		return strings.TrimPrefix(err.Error(), backend.ErrReply.Error()+": "), []error{backend.ErrReply}
	case errors.As(err, &reply):
		return b.refusal(reply.Error(), writes)
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return b.at.String() + ": all connections are in use, for too long", unavailable
	case errors.Is(err, io.EOF):
		return b.at.String() + ": the connection was lost", unavailable
	}
	text = innermost(err)
	for _, unreadable := range []string{"can't parse", "invalid", "unexpected", "the length", "got"} {
		if strings.HasPrefix(text, "redis: "+unreadable) { // the driver's words
			return b.at.String() + ": the server is not a Redis: " + strings.TrimPrefix(text, "redis: "), []error{backend.ErrMismatch, backend.ErrReply}
		}
	}
	return b.at.String() + ": " + text, unavailable
}

// ended returns the error of a context that has ended or that is about to: a socket
// sees a deadline a little before it does.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// refusal says what to do about an error that a server answers.
func (b *Backend) refusal(reply string, writes bool) (text string, kinds []error) {
	unavailable, mismatch := []error{backend.ErrUnavailable}, []error{backend.ErrMismatch, backend.ErrUnavailable}
	at := b.at.String() + ": "
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
	case writes && has("OOM ", "MISCONF", "NOREPLICAS"): // lookups are answered all the same
		return at + "the server takes no changes now: " + reply, []error{backend.ErrReadOnly}
	case has("cluster support disabled"):
		return at + "the server is not part of a cluster: use redis:// instead of redis-cluster://", mismatch
	case !b.at.cluster && has("MOVED ", "CROSSSLOT", "ASK "):
		return at + "the server is a node of a cluster: use redis-cluster:// instead of redis://", mismatch
	case has("WRONGTYPE"):
		return at + "a key of the pool is of another type: is this the layout it was filled with?", []error{backend.ErrReply}
	case has("unknown command"):
		return at + "the server is too old or a sentinel: " + reply, mismatch
	case has("DB index is out of range"):
		return at + "the server has no such database: " + reply, mismatch
	case has("LOADING", "DOWN", "TRYAGAIN", "MOVED ", "ASK ", "OOM ", "MISCONF", "NOREPLICAS", "BUSY", "max number of clients"):
		return at + reply, unavailable
	}
	return at + reply, []error{backend.ErrReply}
}
