package router_test

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
)

// publish returns the publisher of an engine that has these blocks.
func publish(hashes coordinator.Hashes) *eventstest.Publisher {
	p := eventstest.New(eventstest.Example{})
	var all [][]byte
	for _, hash := range hashes.All() {
		all = append(all, hash)
	}
	p.Publish(false, eventstest.Stored(nil, all...))
	return p
}
