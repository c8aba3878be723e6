package netproto

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
)

// NumTags is the number of kinds, that of unknown requests included.
const NumTags = len(kinds)

// kind is how the requests of one kind are read.
type kind struct {
	name     string   // the tag on the wire
	fields   []*field // the frames behind the tag
	optional int      // how many of the last fields may be missing
	rest     *field   // each further frame; nil if there must be none
}

// kinds has all requests. A new one is a row here.
var kinds = [...]kind{
	TagUnknown: {name: "unknown", rest: &ignoredField},

	// Read as leniently as the reference does: integers of any length, and frames too many.
	TagLookup: {name: "lookup", fields: lookupFields, rest: &ignoredField},
	TagReset:  {name: "reset", rest: &ignoredField},

	TagExplain:     {name: "explain", fields: lookupFields},
	TagPlan:        {name: "plan", fields: lookupFields},
	TagStore:       {name: "store", fields: []*field{&rankField, &hashLenField, &blobField, &furtherKeyField}, optional: 1},
	TagEvict:       {name: "evict", fields: []*field{&rankField, &hashLenField, &blobField}},
	TagResetRank:   {name: "reset_rank", fields: []*field{&resetRankField}},
	TagStorePrompt: {name: "store_prompt", fields: []*field{numbersField(numTokens, startToken, promptTokens, firstHash), &ranksField, &statesField, &hashLenField, &blobField}},
	TagLoadMask:    {name: "load_mask", fields: []*field{numbersField(numTokens, numHashes)}},
	TagStoreMask:   {name: "store_mask", fields: []*field{numbersField(numTokens, startToken, promptTokens)}},
	TagLookupMask:  {name: "lookup_mask", fields: []*field{numbersField(numTokens)}},
	TagPing:        {name: "ping", rest: &echoField},
	TagStat:        {name: "stat"},
	TagPool:        {name: "pool", fields: []*field{&descriptionField}},
	TagAuth:        {name: "auth", fields: []*field{&tokenField}},
}

var lookupFields = []*field{&anyNumTokens, &anyHashLen, &anyBlob}

// String returns the tag as on the wire, "unknown" for TagUnknown.
func (t Tag) String() string {
	if int(t) >= len(kinds) {
		t = TagUnknown
	}
	return kinds[t].name
}

// IsMask reports whether the request asks for masks, from numbers alone.
func (t Tag) IsMask() bool { return t == TagLoadMask || t == TagStoreMask || t == TagLookupMask }

// parseTag returns the tag of a first body frame, TagUnknown if there is none.
func parseTag(b []byte) Tag {
	for t := TagLookup; int(t) < len(kinds); t++ {
		if string(b) == kinds[t].name {
			return t
		}
	}
	return TagUnknown
}

// field returns how body frame i is read, counted from the tag, which is 0.
func (k *kind) field(i int) *field {
	switch {
	case i == 0:
		return &tagField
	case i <= len(k.fields):
		return k.fields[i-1]
	case k.rest != nil:
		return k.rest
	}
	return &ignoredField // a problem, see checkMore
}

// beginBody begins a body frame, whose header has been read. At a blob it calls Begin.
func (r *Reader) beginBody(h Handler) {
	q := &r.req
	f := kinds[q.Tag].field(r.body)
	r.field = f
	r.body++
	r.filled = 0
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
	if q.Problem == nil && r.body == 1 { // the tag, which tells how many frames there may be
		q.Problem = r.checkMore()
	}
}

// checkMore returns a problem if a frame follows the current one, and the request has none there.
// So it is known before the keys of the current frame are passed on.
func (r *Reader) checkMore() *Problem {
	k := &kinds[r.req.Tag]
	if !r.frame.more() || k.rest != nil || r.body <= len(k.fields) {
		return nil
	}
	return &Problem{Code: CodeBadRequest, Text: "a frame too many for " + k.name, Frame: r.body}
}

// checkMissing returns a problem if the message has ended before its request has.
func (r *Reader) checkMissing() *Problem {
	k := &kinds[r.req.Tag]
	switch {
	case r.body == 0:
		return &noRequest
	case r.body <= len(k.fields)-k.optional:
		return &Problem{Code: CodeBadRequest, Text: k.fields[r.body-1].name + " is missing", Frame: r.body}
	}
	return nil
}
