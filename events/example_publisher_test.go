package events_test

import (
	"fmt"
	"testing"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/netproto"
)

// exampleTB is what a publisher needs of a test. An example has none.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                      {}
func (exampleTB) Cleanup(func())               {}
func (exampleTB) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (exampleTB) FailNow()                     { panic("the publisher failed") }

// publishers returns two engines. The first has one block, the second all of them.
func publishers(hashes netproto.Hashes) []*eventstest.Publisher {
	engines := []*eventstest.Publisher{eventstest.New(exampleTB{}), eventstest.New(exampleTB{})}
	var all [][]byte
	for _, hash := range hashes.All() {
		all = append(all, hash)
	}
	engines[0].Publish(false, eventstest.Stored(nil, all[0]))
	engines[1].Publish(false, eventstest.Stored(nil, all...))
	return engines
}
