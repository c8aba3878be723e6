package redis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// TestPartlyDone has a server fail in the middle of a change, and at its beginning.
func TestPartlyDone(t *testing.T) {
	scanned := blocks("m", 1)[0]
	left := 0 // commands that the server still confirms
	addr := scriptedServer(t, func() func(string) string {
		return func(command string) string {
			switch {
			case command == "ping":
				return "+PONG\r\n"
			case command == "info":
				return noCommand
			case left == 0:
				return "-OOM command not allowed when used memory > 'maxmemory'\r\n"
			}
			left--
			switch command {
			case "set":
				return "+OK\r\n"
			case "scan":
				return fmt.Sprintf("*2\r\n$1\r\n7\r\n*1\r\n$%d\r\n%s\r\n", len(scanned), scanned)
			}
			return ":1\r\n"
		}
	})
	b := testBackend(t, Config{URL: "redis://" + addr})
	keys := blocks("m", 2*writeBatch)
	changes := map[string]func() error{
		"store": func() error { return b.Store(testContext(t), keys) },
		"evict": func() error { return b.Evict(testContext(t), keys) },
		"reset": func() error { return b.Reset(testContext(t)) },
	}
	for name, change := range changes {
		for _, confirmed := range []int{0, 2} { // of a reset: a SCAN and an UNLINK
			left = confirmed
			err := change()
			require.Error(t, err)
			require.Equal(t, confirmed > 0, errors.Is(err, backend.ErrPartlyDone), "%s with %d confirmed: %v", name, confirmed, err)
			require.ErrorContains(t, err, "maxmemory")
		}
	}
}
