//go:build race

package simd

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// raceEnabled lets tests skip what cannot work, or takes too long, under the race detector.
const raceEnabled = true

// raceChildEnv names the call and the argument of the race that TestRaceChild commits.
const raceChildEnv = "HITLINE_TEST_SIMD_RACE"

// raceCalls returns calls that the detector must see, and for each argument a function that
// writes to it.
func raceCalls() map[string]struct {
	call   func()
	writes map[string]func()
} {
	type calls = struct {
		call   func()
		writes map[string]func()
	}
	// The arrays differ in the first byte; the rest is announced all the same.
	a, b := make([]byte, 512), make([]byte, 512)
	b[0] = 1
	classes := make([]uint16, 512)
	classes[4] = 1
	masks, tags := make([]uint16, 2), make([]uint16, 2)
	buckets := []*[BucketTags]uint16{{}, {}}
	secret := NewDigestSecret()
	return map[string]calls{
		"EqualPrefix": {
			func() { EqualPrefix(a, b, 32) },
			map[string]func(){"a": func() { a[300] = 1 }, "b": func() { b[300] = 1 }},
		},
		"EqualPrefixStrided": {
			func() { EqualPrefixStrided(a, 64, b, 32, 32) },
			map[string]func(){"a": func() { a[65] = 1 }, "b": func() { b[33] = 1 }},
		},
		"RunLength16": {
			func() { RunLength16(classes) },
			map[string]func(){"classes": func() { classes[300] = 1 }},
		},
		"DigestSecret.Sum": {
			func() { secret.Sum(a) },
			map[string]func(){"message": func() { a[300] = 1 }},
		},
		"MatchTags": {
			func() { MatchTags(masks, buckets, tags) },
			map[string]func(){
				"masks":   func() { masks[1] = 1 },
				"buckets": func() { buckets[1] = buckets[0] },
				"bucket":  func() { buckets[1][9] = 1 },
				"tags":    func() { tags[1] = 1 },
			},
		},
	}
}

// TestRaceIsReported checks that the detector reports a write to an argument during a call. A
// reported race fails its process, so each runs in a child.
func TestRaceIsReported(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		for name, c := range raceCalls() {
			for argument := range c.writes {
				child := exec.Command(os.Args[0], "-test.run=^TestRaceChild$")
				child.Env = append(os.Environ(), raceChildEnv+"="+name+" "+argument, kernelEnv+"="+Kernel())
				output, err := child.CombinedOutput()
				require.Error(t, err, "%s, argument %s: no race was reported", name, argument)
				require.Contains(t, string(output), "DATA RACE")
			}
		}
	})
}

// TestRaceGapsAreNotRead checks that the bytes between the hashes of a strided array may be
// written.
func TestRaceGapsAreNotReported(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		a, b := make([]byte, 512), make([]byte, 512)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a[32], a[511] = 1, 1
		}()
		EqualPrefixStrided(a, 64, b, 32, 32)
		<-done
	})
}

func TestRaceChild(t *testing.T) {
	name, argument, found := strings.Cut(os.Getenv(raceChildEnv), " ")
	if !found {
		t.Skip("run by TestRaceIsReported")
	}
	c := raceCalls()[name]
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.writes[argument]()
	}()
	c.call()
	<-done
}
