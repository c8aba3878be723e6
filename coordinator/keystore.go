package coordinator

// KeyStore is an external store in which a lookup checks keys. A lookup calls it from its
// own goroutine only.
type KeyStore interface {
	// Reserve is called before the keys of a call of Exists are built. bytes is the
	// memory that the call needs for its keys, a copy of their text and its answers: a
	// few bytes of hashes can make a thousand times as many of keys. The reservation
	// replaces the one before. If it fails, no key is built, and the lookup goes on as
	// if Exists had failed.
	Reserve(bytes int64) error
	// Exists returns one number for each key: 1 is present, anything else absent. It may leave out
	// the last ones: those from keys.End(i) on if key i is absent. They count as not asked.
	Exists(keys *Keys) ([]int, error)
}

// ExistsFunc is a KeyStore that reserves nothing, and answers the text of keys.
type ExistsFunc func(keys []string) ([]int, error)

// Reserve returns nil.
func (f ExistsFunc) Reserve(int64) error { return nil }

// Exists calls f.
func (f ExistsFunc) Exists(keys *Keys) ([]int, error) { return f(keys.Strings()) }
