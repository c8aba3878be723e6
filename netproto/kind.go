package netproto

import (
	"cmp"
	"strconv"
)

// Tag is the kind of a request: its first body frame.
type Tag uint8

// The kinds of requests.
const (
	TagUnknown Tag = iota
	TagLookup
	TagExplain
	TagReset
	TagStore
	TagEvict
	TagPing
	TagStat
	TagPool
	TagPlan
	TagLoadMask
	TagStoreMask
	TagLookupMask
	TagStorePrompt
	TagResetRank
	TagAuth
	TagLookupFrom
	TagRenew
)

// NumTags is the number of kinds, that of unknown requests included.
const NumTags = len(kinds)

// ProtocolVersion is the number by which the reply to a ping names the wire. It changes when
// clients of the former number would be answered wrongly. Requests, fields of JSON documents and
// frames that former clients do not ask for may be added under the same number.
const ProtocolVersion = 1

// kind is how the requests of one kind are read.
type kind struct {
	name     string   // the tag on the wire
	fields   []*field // the frames after the tag
	optional int      // how many of the last fields may be missing
	rest     *field   // each further frame; nil if there must be none
}

// kinds has all requests. A new one is a row here. The name in its row is at most maxScratch bytes long.
var kinds = [...]kind{
	TagUnknown: {name: "unknown", rest: &ignoredField},

	// The reference ignores further frames of these two.
	TagLookup: {name: "lookup", fields: []*field{&anyNumTokens, &anyHashLen, &anyBlob}, rest: &ignoredField},
	TagReset:  {name: "reset", rest: &ignoredField},

	TagLookupFrom: {name: "lookup_from", fields: lookupFromFields},
	TagExplain:    {name: "explain", fields: lookupFromFields},
	TagPlan:       {name: "plan", fields: lookupFromFields},
	TagRenew:      {name: "renew", fields: []*field{&hashLenField, &blobField}},
	TagStore:      {name: "store", fields: []*field{&rankField, &hashLenField, &blobField, &furtherKeyField}, optional: 1},
	TagEvict:      {name: "evict", fields: []*field{&rankField, &hashLenField, &blobField}},
	TagResetRank:  {name: "reset_rank", fields: []*field{&resetRankField}},
	TagStorePrompt: {name: "store_prompt", fields: []*field{
		numbersField(numTokens, startToken, promptTokens, firstHash), &ranksField, &statesField, &hashLenField, &blobField,
	}},
	TagLoadMask:   {name: "load_mask", fields: []*field{numbersField(numTokens, numHashes)}},
	TagStoreMask:  {name: "store_mask", fields: []*field{numbersField(numTokens, startToken, promptTokens)}},
	TagLookupMask: {name: "lookup_mask", fields: []*field{numbersField(numTokens)}},
	TagPing:       {name: "ping", rest: &echoField},
	TagStat:       {name: "stat"},
	TagPool:       {name: "pool", fields: []*field{&descriptionField}},
	TagAuth:       {name: "auth", fields: []*field{&tokenField}},
}

var lookupFromFields = []*field{&lookupNumbersField, &optionalHashLenField, &optionalBlobField}

// String returns the tag as on the wire, "unknown" for TagUnknown.
func (t Tag) String() string {
	if int(t) >= len(kinds) {
		t = TagUnknown
	}
	return kinds[t].name
}

// parseTag returns the tag of a first body frame, TagUnknown if there is none.
func parseTag(b []byte) Tag {
	for t := TagLookup; int(t) < len(kinds); t++ {
		if string(b) == kinds[t].name {
			return t
		}
	}
	return TagUnknown
}

// beginBody begins a body frame, whose header has been read. At a blob it calls Begin.
func (r *Reader) beginBody(h Handler) {
	q, f := &r.req, &tagField
	switch k := &kinds[q.Tag]; {
	case r.body > len(k.fields):
		f = cmp.Or(k.rest, &ignoredField) // one too many is a problem already
	case r.body > 0:
		f = k.fields[r.body-1]
	}
	r.field, r.filled = f, 0
	r.body++
	if q.Problem == nil && f.begin != nil {
		q.Problem = f.begin(r)
	}
	if q.Problem == nil {
		q.Problem = r.checkMore()
	}
	if q.Problem == nil && f.isBlob {
		r.beginBlob(h)
	}
}

// readBody consumes the next bytes of a body frame. Those of a request with a problem are ignored.
func (r *Reader) readBody(p []byte, h Handler) {
	f := r.field
	switch {
	case f.isBlob:
		r.readBlob(p, h)
	case f.read != nil && r.req.Problem == nil:
		f.read(r, p)
	}
	if f.isSecret {
		clear(p)
	}
}

// endBody ends a body frame.
func (r *Reader) endBody() {
	q := &r.req
	if q.Problem == nil && r.field.end != nil {
		q.Problem = r.field.end(r)
	}
}

// checkMore returns a problem if a frame follows the current one, and the request has none there.
// So it is known before the keys of the current frame are passed on.
func (r *Reader) checkMore() *Problem {
	k := &kinds[r.req.Tag]
	if !r.frame.More() || k.rest != nil || r.body <= len(k.fields) {
		return nil
	}
	return &Problem{Code: CodeBadRequest, Text: "frame " + strconv.Itoa(r.body) + " is one too many for " + k.name, Frame: r.body}
}

// checkMissing returns a problem if the message has ended before its request has.
func (r *Reader) checkMissing() *Problem {
	k := &kinds[r.req.Tag]
	switch {
	case r.body == 0:
		return &Problem{Code: CodeUnknownRequest, Text: "no request behind the delimiter"}
	case r.body <= len(k.fields)-k.optional:
		return &Problem{Code: CodeBadRequest, Text: k.fields[r.body-1].name + " is missing", Frame: r.body}
	}
	return nil
}
