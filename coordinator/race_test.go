//go:build race

package coordinator

// raceEnabled: the race detector allocates on its own account.
const raceEnabled = true
