package events

const (
	maxInterned    = 1024 // strings
	maxInternedLen = 256  // bytes of one
)

// interner keeps strings that repeat, so that a string of a payload need not be allocated anew.
// Its zero value is ready.
type interner struct {
	strings map[string]string
}

// intern returns b as a string.
func (n *interner) intern(b []byte) string {
	if len(b) > maxInternedLen {
		return string(b)
	}
	if s, ok := n.strings[string(b)]; ok {
		return s
	}
	// A publisher may send a new session with each event: start again rather than grow.
	if len(n.strings) >= maxInterned {
		clear(n.strings)
	}
	if n.strings == nil {
		n.strings = make(map[string]string)
	}
	s := string(b)
	n.strings[s] = s
	return s
}
