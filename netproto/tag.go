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
	TagHolders
)

// tagNames holds the bytes of each tag on the wire.
var tagNames = [...]string{
	TagUnknown: "", TagLookup: "lookup", TagExplain: "explain", TagReset: "reset",
	TagStore: "store", TagEvict: "evict", TagPing: "ping", TagStat: "stat", TagPool: "pool",
	TagPlan: "plan", TagLoadMask: "load_mask", TagStoreMask: "store_mask", TagLookupMask: "lookup_mask",
	TagStorePrompt: "store_prompt", TagResetRank: "reset_rank", TagAuth: "auth", TagHolders: "holders",
}

// NumTags is the number of kinds, that of unknown requests included.
const NumTags = len(tagNames)

// maxTag is the length of the longest tag in bytes.
const maxTag = len("store_prompt")

// String returns the tag as on the wire, "unknown" for TagUnknown.
func (t Tag) String() string {
	if t == TagUnknown || int(t) >= len(tagNames) {
		return "unknown"
	}
	return tagNames[t]
}

// hasLookupFrames reports whether the request has the frames of a lookup, which are read
// leniently as the reference reads them.
func (t Tag) hasLookupFrames() bool { return t == TagLookup || t == TagExplain || t == TagPlan }

// IsMask reports whether the request asks for masks, from numbers alone.
func (t Tag) IsMask() bool { return t == TagLoadMask || t == TagStoreMask || t == TagLookupMask }

// parseTag returns the tag of a first body frame, TagUnknown if there is none.
func parseTag(b []byte) Tag {
	for t := TagLookup; int(t) < len(tagNames); t++ {
		if string(b) == tagNames[t] {
			return t
		}
	}
	return TagUnknown
}
