package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/description"
	"github.com/hitline/hitline/netproto"
)

// appendRefusal appends the refusal of a request about a pool, which may be nil, and counts it.
//
// The reference's lookup client reads one frame. So over ZMTP the requests that it makes get the reference's
// reply: from vLLM 0.29.0 on a refused lookup is a hit of 0 tokens. A raw client gets that hit too, unless
// the refusal is one that the reference does not have: no permission, or busy.
func (s *session) appendRefusal(tag netproto.Tag, p *pool, envelope []byte, err error) {
	r := refusalOf(tag, err)
	s.countRefused(r, err)
	ofReference := tag == netproto.TagLookup || tag == netproto.TagReset || tag == netproto.TagUnknown
	ofServer := r.Refusal == api.RefusalNotAllowed || r.Refusal == api.RefusalBusy
	switch {
	case tag == netproto.TagLookup && p != nil && p.service.Coordinator().HasTailBoundaries() && (s.conn.reader.ZMTP() || !ofServer):
		s.turn.out = appendHit(s.turn.out, envelope, api.Hit{})
	case ofReference && s.conn.reader.ZMTP():
		s.turn.out = netproto.AppendRefusal(s.turn.out, envelope, netproto.StatusFailed, "", nil)
	default:
		s.turn.out = netproto.AppendRefusal(s.turn.out, envelope, statusOf(tag, r), reasonText(err), encodeRefusal(r))
	}
}

// maxReason bounds the reason of a refusal in bytes, and maxRefusal its JSON: clients read no more of that.
const maxReason, maxRefusal = 512, 64 << 10

// reasonText returns the text of an error for a peer.
func reasonText(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason-len("…")], "") + "…"
	}
	return text
}

// statusOf returns the first frame of a refusal. The reference knows no reset that is done in part.
func statusOf(tag netproto.Tag, r *api.Refusal) byte {
	if r.Refusal == api.RefusalPartlyDone && tag != netproto.TagReset {
		return netproto.StatusPartial
	}
	return netproto.StatusFailed
}

// countRefused counts a request that is refused, and has the log tell of it.
func (s *session) countRefused(r *api.Refusal, err error) {
	s.conn.loop.metrics.refused.Add(1)
	denied := (*notAllowedError)(nil)
	switch {
	case r.Refusal == api.RefusalBusy:
		s.conn.loop.metrics.busy.Add(1)
		if errors.Is(err, errNoMemory) {
			s.shared.memoryAccount.Refuse()
		}
	case r.Refusal == api.RefusalNotAuthenticated: // which failAuth has logged
		return
	case errors.As(err, &denied):
		s.shared.peers.requestNotAllowed(denied.tag, s.conn.peer, denied.name, s.listener.Address, err)
		return
	}
	s.shared.peers.requestRefused(s.conn.peer, err)
}

// refusalOf returns why a request is refused, for programs.
func refusalOf(tag netproto.Tag, err error) *api.Refusal {
	r := &api.Refusal{Request: tag.String()}
	if p, ok := err.(*netproto.Problem); ok { //nolint:errorlint // the reader's own, and a flood of them must be cheap
		r.Refusal, r.Frame, r.Limit = p.Code, p.Frame, p.Limit
		return r
	}
	r.Refusal, r.Limit = codeOf(tag, err)
	var differs *differsError
	var limit *limitError
	var parts *api.PartsError
	var problem *netproto.Problem // that came after a part was done
	switch {
	case errors.As(err, &problem):
		r.Frame = problem.Frame
	case errors.As(err, &differs):
		r.Differences = differs.differences
	case errors.As(err, &limit):
		r.Limit = limit.limit
	case errors.As(err, &parts):
		r.Parts, r.MoreParts = parts.Parts, parts.More
	}
	return r
}

// codes are the errors of each code. One that is not here is bad_request, or store_failed if the request
// calls a store.
var codes = []struct {
	code  string
	limit int64 // that is exceeded, 0 if it is no fixed number
	errs  []error
}{
	{api.RefusalNotAuthenticated, 0, []error{errNotAuthenticated}},
	{api.RefusalNoPool, 0, []error{errNoPool, errUnknownPool, errNotOfTenant}},
	{api.RefusalPoolDiffers, 0, []error{errPoolDiffers}},
	{api.RefusalBusy, 0, []error{errBusy}},
	{api.RefusalTooLarge, description.MaxRanks, []error{description.ErrTooLarge}},
	{api.RefusalTooLarge, description.MaxText, []error{description.ErrText}},
	{api.RefusalTooLarge, api.MaxRuns, []error{lookup.ErrTooManyRuns}},
	{api.RefusalTooLarge, 0, []error{lookup.ErrTooManyKeys}},
	{api.RefusalUnsupported, 0, []error{errNotAccepted, errTooManyPools, lookup.ErrResetRank, lookup.ErrUnsupported, index.ErrClasses}},
	{api.RefusalStoreFailed, 0, []error{backend.ErrUnavailable, backend.ErrReadOnly, context.DeadlineExceeded, context.Canceled}},
	{api.RefusalBadRequest, 0, []error{
		errHashLen, errTooManyHashes, lookup.ErrTokens, lookup.ErrGroupRank, lookup.ErrHitRange, api.ErrPrompt, api.ErrNoStates,
		index.ErrOtherHashLen, coordinator.ErrPrecondition, coordinator.ErrIndexOutOfRange, coordinator.ErrNegativeLength,
	}},
}

// codeOf returns the code of an error, and the limit that it exceeds if that is a fixed number.
func codeOf(tag netproto.Tag, err error) (code string, limit int64) {
	switch {
	case errors.Is(err, api.ErrPartlyDone):
		return api.RefusalPartlyDone, 0
	case errors.As(err, new(*notAllowedError)):
		return api.RefusalNotAllowed, 0
	case errors.As(err, new(*limitError)):
		return api.RefusalTooLarge, 0
	}
	for _, c := range codes {
		if slices.ContainsFunc(c.errs, func(of error) bool { return errors.Is(err, of) }) {
			return c.code, c.limit
		}
	}
	if operations[tag].callsStore {
		return api.RefusalStoreFailed, 0
	}
	return api.RefusalBadRequest, 0
}

// encodeRefusal returns a refusal in JSON, with as many of the differences as fit.
func encodeRefusal(r *api.Refusal) []byte {
	for {
		text, _ := json.Marshal(r) // numbers and texts
		if len(text) <= maxRefusal || len(r.Differences) == 0 {
			return text
		}
		r.Differences = r.Differences[:len(r.Differences)/2]
	}
}
