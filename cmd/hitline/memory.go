package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// storeMemory is the default bound over a store: hashes and keys then have their own default
// bounds, and connections 200 MiB.
const storeMemory = lookup.DefaultMaxKeyBytes / 10 * 16

// memoryAccount returns the account of what peers make the server hold. Its bound is
// limits.max_memory. If that is 0, it is that of connections, over a store storeMemory; but at
// most half of what the machine or the container has beside the memory index and the router.
func memoryAccount(cfg *config.Config, store *remoteStore) *lookup.MemoryAccount {
	if most := int64(cfg.Limits.MaxMemory); most > 0 {
		return lookup.NewMemoryAccount(most)
	}
	most := server.DefaultLimits().MaxMemory
	if store != nil {
		most = storeMemory
	}
	if total := machineMemory(); total > 0 {
		most = min(most, max((total-indexMemory(cfg, store)-routerMemory(cfg))/2, config.MinMemory))
	}
	return lookup.NewMemoryAccount(most)
}

// indexMemory returns the bound of the memory index in bytes, 0 over a store.
func indexMemory(cfg *config.Config, store *remoteStore) int64 {
	if store != nil {
		return 0
	}
	return int64(cfg.Backend.Memory.MaxBytes)
}

// routerMemory returns the bound of who holds what in bytes, of the configured models.
func routerMemory(cfg *config.Config) int64 {
	var most int64
	for i := range cfg.Router.Models {
		most += int64(cfg.Router.Models[i].MaxBytes)
	}
	return most
}

// memoryWarnings returns a sentence if the bounds that are configured exceed total, the memory that
// the process may use in bytes, 0 if that is unknown.
func memoryWarnings(cfg *config.Config, store *remoteStore, total int64) []string {
	var parts []string
	var sum int64
	for _, bound := range []struct {
		name  string
		bytes int64
	}{
		{"backend.memory.max_bytes", indexMemory(cfg, store)},
		{"max_bytes of router.models", routerMemory(cfg)},
		{"limits.max_memory", int64(cfg.Limits.MaxMemory)},
	} {
		if bound.bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %v", bound.name, config.Size(bound.bytes)))
			sum += min(bound.bytes, math.MaxInt64-sum)
		}
	}
	if total == 0 || sum <= total {
		return nil
	}
	together := ""
	if len(parts) > 1 {
		together = ", together"
	}
	return []string{fmt.Sprintf("%s%s: more than the %dMiB of memory that this machine or container has; a bound above it protects from nothing, lower it",
		strings.Join(parts, " and "), together, total>>20)}
}

// leastGoMemory is the least soft limit of Go's memory, in bytes.
const leastGoMemory = 64 << 20

// limitGoMemory sets the soft limit of Go's memory in a container that has a limit, unless
// GOMEMLIMIT does: to nine tenths, less the memory index, whose large pieces are not Go's. Without
// it, garbage may take as much memory as what is held.
func limitGoMemory(cfg *config.Config, store *remoteStore) {
	limit, err := memlimit.FromCgroup()
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(max(int64(limit)/10*9-indexMemory(cfg, store), leastGoMemory))
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
