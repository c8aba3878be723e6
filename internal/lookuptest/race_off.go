//go:build !race

package lookuptest

// Race reports whether the race detector is on.
const Race = false
