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
	// Pause is called after each PauseEvery hashes, or up to 63 more, while their keys are
	// built. A store may yield the processor to others.
	Pause()
	// Exists returns one number for each key: 1 is present, anything else absent. keys
	// belong to the store from then on.
	Exists(keys []string) ([]int, error)
}

// PauseEvery is the number of hashes, some ten microseconds of work, whose keys are built
// between two calls of KeyStore.Pause.
const PauseEvery = 128

// ExistsFunc is a KeyStore that reserves nothing.
type ExistsFunc func(keys []string) ([]int, error)

// Reserve returns nil.
func (f ExistsFunc) Reserve(int64) error { return nil }

// Pause does nothing.
func (f ExistsFunc) Pause() {}

// Exists calls f.
func (f ExistsFunc) Exists(keys []string) ([]int, error) { return f(keys) }
