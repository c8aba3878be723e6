package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// refusal is the reply to a request that is refused.
type refusal struct {
	status  int
	Code    string `json:"code"`    // for programs; openapi.yaml lists them
	Message string `json:"message"` // for people
}

// Error implements error.
func (r *refusal) Error() string { return r.Message }

// maxMessage bounds a message in bytes, as it may repeat what the request has.
const maxMessage = 500

// refuse returns a refusal.
func refuse(status int, code, format string, args ...any) *refusal {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…" // writeJSON mends what is cut
	}
	return &refusal{status, code, text}
}

// wrongField returns a router.ErrField about a field of a body.
func wrongField(name, format string, args ...any) error {
	return fmt.Errorf("%w: %w", router.ErrField, fielderror.New([]string{name}, format, args...))
}

// messageOf returns what an error says to people: field NAME: what is wrong with it; what to do.
func messageOf(err error) string {
	if wrong, ok := errors.AsType[*fielderror.Error](err); ok {
		return "field " + wrong.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in time; try again"
	}
	return err.Error()
}

// body returns the JSON of the reply.
func (r *refusal) body() []byte {
	var out bytes.Buffer
	_ = writeJSON(&out, map[string]*refusal{"error": r}) // texts can always be written
	return out.Bytes()
}

// refusals has the status and code of each error, the first that matches.
var refusals = []struct {
	err    error
	status int
	code   string
}{
	{errSyntax, http.StatusBadRequest, "bad_json"},
	{errMany, http.StatusRequestEntityTooLarge, "too_large"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout"},

	{router.ErrNoModel, http.StatusNotFound, "no_model"},
	{router.ErrNoHashing, http.StatusConflict, "no_hashing"},
	{router.ErrHashesDiffer, http.StatusConflict, "hashes_differ"},
	{router.ErrOtherBlock, http.StatusConflict, "other_block_size"},
	{router.ErrOtherType, http.StatusConflict, "other_engine"},
	{router.ErrTooMany, http.StatusConflict, "too_many"},
	{router.ErrWholeHash, http.StatusBadRequest, "bad_hashes"},
	{router.ErrHashLen, http.StatusBadRequest, "bad_hashes"},
	{fielderror.ErrConfig, http.StatusBadRequest, "bad_field"}, // of a source, or of the model that a registration makes
	{router.ErrField, http.StatusBadRequest, "bad_field"},
	{router.ErrToken, http.StatusBadRequest, "bad_tokens"},
	{router.ErrAdapter, http.StatusBadRequest, "bad_tokens"},
	{blockhash.ErrExtraKeys, http.StatusBadRequest, "bad_tokens"},

	{router.ErrNotAllowed, http.StatusForbidden, "not_allowed"},
	{router.ErrExists, http.StatusConflict, "exists"},
	{router.ErrConfigured, http.StatusConflict, "configured"},
	{router.ErrNoSource, http.StatusNotFound, "no_source"},
	{router.ErrLoading, http.StatusServiceUnavailable, "not_ready"},
	{router.ErrClosed, http.StatusServiceUnavailable, "closing"},
	{fleet.ErrExists, http.StatusConflict, "exists"},
	{fleet.ErrTooMany, http.StatusConflict, "too_many"},
	{fleet.ErrFull, http.StatusServiceUnavailable, "full"},
}

// refusalOf returns the reply for an error.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return refuse(known.status, known.code, "%s", messageOf(err))
		}
	}
	return refuse(http.StatusUnprocessableEntity, "unanswerable", "%s", messageOf(err))
}
