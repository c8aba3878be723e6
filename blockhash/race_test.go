//go:build race

package blockhash

// raceEnabled: the race detector allocates on its own account.
const raceEnabled = true
