package holders_test

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

// publish returns the publisher of an engine that has these blocks.
func publish(hashes netproto.Hashes) *eventstest.Publisher {
	p := eventstest.New(exampleTB{})
	var all [][]byte
	for _, hash := range hashes.All() {
		all = append(all, hash)
	}
	p.Publish(false, eventstest.Stored(nil, all...))
	return p
}
