package lookup

import (
	"testing"

	"github.com/hitline/hitline/internal/lookuptest"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

// blocks16 is a service of one full-attention group of 16 tokens on one rank.
var blocks16 = ServiceConfig{Pool: lookuptest.Blocks16}

// patient is a configuration in which no call runs out of time.
var patient = RemoteConfig{Timeout: lookuptest.Patience, WriteTimeout: lookuptest.Patience}

// skipUnderRace skips a test that compares many answers of one goroutine: it has nothing to race for, and takes
// minutes there.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if lookuptest.Race {
		t.Skip("one goroutine that compares many answers: not under the race detector")
	}
}
