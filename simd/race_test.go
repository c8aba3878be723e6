//go:build race

package simd

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// raceEnabled tells the tests that cannot work, or take too long, under the race detector.
const raceEnabled = true

// envRaceChild makes TestRaceChild commit its race.
const envRaceChild = "HITLINE_TEST_SIMD_RACE"

// TestRaceIsSeen checks that the detector learns what a kernel reads: a write to an
// argument during a call is reported. A reported race fails the process that has it, so
// that is another one.
func TestRaceIsSeen(t *testing.T) {
	eachKernel(t, func(t *testing.T) {
		for _, argument := range []string{"a", "b"} {
			child := exec.Command(os.Args[0], "-test.run=^TestRaceChild$")
			child.Env = append(os.Environ(), envRaceChild+"="+argument, envKernel+"="+Kernel())
			output, err := child.CombinedOutput()
			require.Error(t, err, "argument %s: no race was reported", argument)
			require.Contains(t, string(output), "DATA RACE")
		}
	})
}

func TestRaceChild(t *testing.T) {
	argument := os.Getenv(envRaceChild)
	if argument == "" {
		t.Skip("run by TestRaceIsSeen")
	}
	arrays := map[string][]byte{"a": make([]byte, 512), "b": make([]byte, 512)}
	arrays["b"][0] = 1 // they part at once; the rest is announced all the same
	written := arrays[argument]
	done := make(chan struct{})
	go func() {
		defer close(done)
		written[300] = 1
	}()
	EqualPrefix(arrays["a"], arrays["b"], 32)
	<-done
}
