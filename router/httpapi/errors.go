package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// refusal is the reply to a request that is refused.
type refusal struct {
	status  int
	code    string // for programs; openapi.yaml lists them
	message string // for people
}

// errRefused is wrapped by refusals.
var errRefused = errors.New("httpapi: refused")

// Error implements error.
func (r *refusal) Error() string { return r.message }

// Unwrap makes a refusal an errRefused.
func (r *refusal) Unwrap() error { return errRefused }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// maxMessage bounds a message in bytes, as it may repeat what the request has.
const maxMessage = 500

// body returns the JSON of the reply.
func (r *refusal) body() []byte {
	var reply struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	reply.Error.Code, reply.Error.Message = r.code, r.message
	if len(r.message) > maxMessage {
		reply.Error.Message = strings.ToValidUTF8(r.message[:maxMessage], "") + "…"
	}
	text, err := json.Marshal(&reply)
	if err != nil {
		panic(err) // texts can always be written
	}
	return append(text, '\n')
}

// refusals has the status and code of each error, the first that matches.
var refusals = []struct {
	err    error
	status int
	code   string
}{
	{errSyntax, http.StatusBadRequest, "bad_json"},
	{errMany, http.StatusRequestEntityTooLarge, "too_large"},
	{errField, http.StatusBadRequest, "bad_field"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout"},

	{router.ErrNoModel, http.StatusNotFound, "no_model"},
	{router.ErrNoHashing, http.StatusConflict, "no_hashing"},
	{router.ErrNoPool, http.StatusConflict, "no_pool"},
	{router.ErrOtherBlock, http.StatusConflict, "other_block_size"},
	{router.ErrOtherType, http.StatusConflict, "other_engine"},
	{router.ErrNoBlockSize, http.StatusConflict, "no_block_size"},
	{router.ErrTooMany, http.StatusConflict, "too_many"},
	{router.ErrWholeHash, http.StatusBadRequest, "bad_hashes"},
	{router.ErrHashLen, http.StatusBadRequest, "bad_hashes"},
	{fielderror.ErrConfig, http.StatusBadRequest, "bad_field"}, // of a source, or of the model that a registration makes
	{router.ErrField, http.StatusBadRequest, "bad_field"},
	{router.ErrToken, http.StatusBadRequest, "bad_tokens"},
	{router.ErrAdapter, http.StatusBadRequest, "bad_tokens"},
	{blockhash.ErrExtraKeys, http.StatusBadRequest, "bad_tokens"},

	{events.ErrNotAllowed, http.StatusForbidden, "not_allowed"},
	{events.ErrExists, http.StatusConflict, "exists"},
	{events.ErrConfigured, http.StatusConflict, "configured"},
	{events.ErrTooMany, http.StatusConflict, "too_many"},
	{events.ErrNoSource, http.StatusNotFound, "no_source"},
	{router.ErrDumpBusy, http.StatusServiceUnavailable, "busy"},
	{router.ErrLoading, http.StatusServiceUnavailable, "not_ready"},
	{events.ErrClosed, http.StatusServiceUnavailable, "closing"},
	{fleet.ErrExists, http.StatusConflict, "exists"},
	{fleet.ErrTooMany, http.StatusConflict, "too_many"},
	{events.ErrFull, http.StatusServiceUnavailable, "full"}, // fleet.ErrFull too
}

// isKnown reports whether refusalOf has a reply for an error.
func isKnown(err error) bool { return refusalOf(err).code != "unanswerable" }

// refusalOf returns the reply for an error.
func refusalOf(err error) *refusal {
	var r *refusal
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &large):
		return &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection, whose addresses its text has
		return &refusal{http.StatusRequestTimeout, "slow_body", "the body did not arrive in time"}
	}
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return &refusal{known.status, known.code, err.Error()}
		}
	}
	return &refusal{http.StatusUnprocessableEntity, "unanswerable", err.Error()}
}
