package lookup

import (
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

// blocks16 is a service of one full-attention group of 16 tokens on one rank.
var blocks16 = ServiceConfig{Pool: lookuptest.Blocks16}

// hybridPool has a group of full attention, one of a window and one of a state-space model.
var hybridPool = coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16},
	{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 128},
	{Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"},
}}

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
