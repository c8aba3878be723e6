package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"

	"github.com/hitline/hitline/internal/printable"
)

// Every error of a request wraps one of these. Match them with errors.Is.
var (
	// ErrRefused says that the server answered with another status than 200. The error is a *RefusedError.
	ErrRefused = errors.New("refused by the server")
	// ErrConnect says that the server could not be reached, or does not speak HTTP.
	ErrConnect = errors.New("no connection")
	// ErrNoAnswer says that the context ended, the timeout passed or the connection broke before the answer had come.
	ErrNoAnswer = errors.New("no answer")
	// ErrReply says that the answer is none.
	ErrReply = errors.New("bad reply")
)

// maxText bounds a text of the server in an error, in bytes.
const maxText = 512

// RefusedError is the ErrRefused of a server. Its texts are printable.
type RefusedError struct {
	Status  int    // of HTTP
	Code    string // for programs: openapi.yaml lists them; empty if the server has told none
	Message string // for people
	address string
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := e.address + ": " + ErrRefused.Error() + ": " + e.Message
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// refusal returns the error of a response with another status than 200.
func (c *Client) refusal(response *http.Response, reply []byte) error {
	e := &RefusedError{Status: response.StatusCode, Message: printable.Cut(response.Status, maxText), address: c.address}
	var doc struct {
		Error struct{ Code, Message string }
	}
	switch err := json.Unmarshal(reply, &doc); {
	case err == nil && doc.Error.Code != "":
		e.Code, e.Message = printable.Cut(doc.Error.Code, maxText), printable.Cut(doc.Error.Message, maxText)
	case bytes.Contains(reply, []byte("HTTP request to an HTTPS server")): // as net/http answers
		e.Message += "; it has TLS, so give https://"
	case e.Status == http.StatusNotFound: // hitline's own have a code
		e.Message += "; is this router.listen?"
	}
	return e
}

// connectError returns the error of a request that got no response.
func (c *Client) connectError(ctx context.Context, err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err // the text of a url.Error has the address, too
	}
	switch {
	case ctx.Err() != nil:
		return c.answerError(ctx, err)
	case errors.Is(err, http.ErrSchemeMismatch):
		err = errors.New("the server has no TLS, so give http://")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = fmt.Errorf("the server does not speak HTTP; give the address of router.listen, with https:// if it has TLS: %w", err)
	}
	return fmt.Errorf("%s: %w: %w", c.address, ErrConnect, err)
}

// answerError returns the error of a request whose answer did not come.
func (c *Client) answerError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w in time: %w", c.address, ErrNoAnswer, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %w", c.address, ErrNoAnswer, err)
}

// badReply returns the error of a reply that cannot be read, for err, which may have its texts.
func (c *Client) badReply(err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = errors.New("no JSON")
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // whose text has Go's types
		err = fmt.Errorf("%s has another type: %s", cmp.Or(wrong.Field, "the document"), wrong.Value)
	}
	return fmt.Errorf("%s: %w: %s", c.address, ErrReply, printable.Cut(err.Error(), maxText))
}
