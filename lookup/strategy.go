package lookup

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Strategy is how a lookup asks a backend. All give the same answer.
type Strategy uint8

const (
	// Gallop asks in rounds, at most four, and stops when the answer can no longer
	// change: a cold prompt costs a few keys, a full hit one round trip more. See
	// coordinator.Gallop.
	Gallop Strategy = iota
	// SingleCall asks for all keys in one call, as the reference does. Its name in
	// configuration is ask_all.
	SingleCall
)

var strategyNames = [...]string{Gallop: "gallop", SingleCall: "ask_all"}

// String returns the name used in configuration.
func (s Strategy) String() string {
	if int(s) < len(strategyNames) {
		return strategyNames[s]
	}
	return fmt.Sprintf("strategy(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Strategy) MarshalText() ([]byte, error) {
	if int(s) >= len(strategyNames) {
		return nil, fmt.Errorf("lookup: %w: unknown strategy number %d", api.ErrConfig, uint8(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Strategy) UnmarshalText(text []byte) error {
	i := slices.Index(strategyNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("lookup: %w: unknown strategy %q, want gallop or ask_all", api.ErrConfig, text)
	}
	*s = Strategy(i)
	return nil
}

// lookup looks up by this strategy. (Reference: MooncakeStoreWorker.lookup.)
func (s Strategy) lookup(c *coordinator.Coordinator, numTokens int64, hashes coordinator.Hashes, store coordinator.KeyStore) (coordinator.Hit, error) {
	if s == SingleCall {
		return c.Lookup(numTokens, hashes, store)
	}
	return c.Gallop(numTokens, hashes, store)
}
