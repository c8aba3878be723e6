//go:build !race

package simd

// raceEnabled tells the tests that cannot work, or take too long, under the race detector.
const raceEnabled = false
