package events_test

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
)

// publishers returns two engines. The first has one block, the second all of them.
func publishers(hashes coordinator.Hashes) []*eventstest.Publisher {
	engines := []*eventstest.Publisher{eventstest.New(eventstest.Example{}), eventstest.New(eventstest.Example{})}
	var all [][]byte
	for _, hash := range hashes.All() {
		all = append(all, hash)
	}
	engines[0].Publish(false, eventstest.Stored(nil, all[0]))
	engines[1].Publish(false, eventstest.Stored(nil, all...))
	return engines
}
