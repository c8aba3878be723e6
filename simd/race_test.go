//go:build race

package simd

// raceEnabled lets tests skip what cannot work, or takes too long, under the race detector.
const raceEnabled = true
