package main

import (
	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// leastMemory is the least bound on what peers make the server hold, in bytes: some large
// requests.
const leastMemory = 16 << 20

// memoryAccount returns the account of what peers make the server hold. Its bound is
// limits.max_memory. If that is 0, it is what connections may hold, and over a store what its
// requests may hold beside it; but at most half of what the machine or the container has
// beside the memory index.
func memoryAccount(cfg *config.Config, store *remoteStore) *lookup.MemoryAccount {
	if most := int64(cfg.Limits.MaxMemory); most > 0 {
		return lookup.NewMemoryAccount(most)
	}
	most, index := server.DefaultLimits().MaxMemory, int64(0)
	if store != nil {
		most += lookup.DefaultMaxBytes + lookup.DefaultMaxKeyBytes
	} else {
		index = int64(cfg.Backend.Memory.MaxBytes)
	}
	if total := machineMemory(); total > 0 {
		most = min(most, max((total-index)/2, leastMemory))
	}
	return lookup.NewMemoryAccount(most)
}

// machineMemory returns the bytes of memory that the process may use, by its container or the
// machine, 0 if that is unknown.
func machineMemory() int64 {
	least := int64(0)
	for _, limit := range []func() (uint64, error){memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := limit(); err == nil && n > 0 && (least == 0 || int64(n) < least) {
			least = int64(n)
		}
	}
	return least
}
