//go:build !race

package lookuptest

// Race tells whether the race detector is on.
const Race = false
