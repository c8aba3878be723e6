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
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// storeMemory is the default bound over a store: hashes and keys then have their own default
// bounds, and connections 200 MiB.
const storeMemory = lookup.DefaultMaxKeyBytes / 10 * 16

// maxRequestMemory is what requests at router.listen hold at most in bytes: see requestMemory.
const maxRequestMemory = 256 << 20

// memoryAccount returns the account of what peers make the server hold.
func memoryAccount(cfg *config.Config, store *remoteStore) *lookup.MemoryAccount {
	return lookup.NewMemoryAccount(memoryBound(cfg, store))
}

// memoryBound returns the bound of what peers make the server hold in bytes:
// limits.max_memory. If that is 0, it is that of connections, over a store storeMemory; but at
// most half of what the machine or the container has besides the memory index and what the router holds.
func memoryBound(cfg *config.Config, store *remoteStore) int64 {
	if most := int64(cfg.Limits.MaxMemory); most > 0 {
		return most
	}
	most := server.DefaultLimits().MaxMemory
	if store != nil {
		most = storeMemory
	}
	if total := machineMemory(); total > 0 {
		held := indexMemory(cfg, store) + holderMemory(cfg) + eventMemory(cfg)
		most = min(most, max((total-held)/2, config.MinMemory))
	}
	return most
}

// requestMemory returns the bound of what requests at router.listen hold in bytes, besides an account: five eighths as
// much, by default httpapi.DefaultMaxMemory.
func requestMemory(account *lookup.MemoryAccount) int64 {
	_, most, _ := account.Usage()
	return min(most/8*5, maxRequestMemory)
}

// indexMemory returns the bound of the memory index in bytes, 0 over a store.
func indexMemory(cfg *config.Config, store *remoteStore) int64 {
	if store != nil {
		return 0
	}
	return int64(cfg.Backend.Memory.MaxBytes)
}

// holderMemory returns the bound of who holds what in bytes, predictions included: of the configured models, or of one
// if others name them. What a peer holds is loaded into the same.
func holderMemory(cfg *config.Config) int64 {
	f := &cfg.Router
	if len(f.Models) == 0 && f.IsServed() {
		return int64(f.MaxBytes)
	}
	var most int64
	for i := range f.Models {
		most += int64(f.Models[i].MaxBytes)
	}
	return most
}

// eventMemory returns the bound of what sources of events take in bytes, their batches and texts included.
func eventMemory(cfg *config.Config) int64 {
	f := &cfg.Router
	sources := len(f.Sources)
	if len(f.Register) > 0 {
		sources += router.DefaultMaxSources
	}
	if sources == 0 {
		return 0
	}
	return events.MemoryBytes(int(f.MaxPayload)) + int64(sources)*events.SourceBytes
}

// routerHTTPMemory returns the bound of what requests at router.listen hold in bytes, and a dump, which is a copy of what all
// models hold.
func routerHTTPMemory(cfg *config.Config) int64 {
	if cfg.Router.Listen == nil {
		return 0
	}
	return maxRequestMemory + holderMemory(cfg)
}

// memoryWarnings returns a sentence if the bounds that are configured exceed total, the memory that
// the process may use in bytes, 0 if that is unknown.
func memoryWarnings(cfg *config.Config, store *remoteStore, total int64) []string {
	var parts []string
	var sum int64
	var path string // of the largest
	var largest int64
	for _, bound := range []struct {
		path, name string
		bytes      int64
	}{
		{"backend.memory.max_bytes", "backend.memory.max_bytes", indexMemory(cfg, store)},
		{"router.models", "max_bytes of router.models", holderMemory(cfg)},
		{"limits.max_memory", "limits.max_memory", int64(cfg.Limits.MaxMemory)},
		{"router.sources", "events by router.max_payload and router.sources", wholeMiB(eventMemory(cfg))},
		{"router.listen", "queries and dumps at router.listen", wholeMiB(routerHTTPMemory(cfg))},
	} {
		if bound.bytes > largest {
			path, largest = bound.path, bound.bytes
		}
		if bound.bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %v", bound.name, config.Size(bound.bytes)))
			sum += min(bound.bytes, math.MaxInt64-sum)
		}
	}
	if total == 0 || sum <= total {
		return nil
	}
	what := strings.Join(parts, " and ") + ", together"
	if len(parts) == 1 {
		what = config.Size(largest).String()
	}
	return []string{cfg.WithOrigin(path, fmt.Errorf("%s: more than the %dMiB of memory that this machine or container has; a bound above it protects from nothing, lower it",
		what, total>>20)).Error()}
}

// wholeMiB rounds bytes up.
func wholeMiB(n int64) int64 { return (n + 1<<20 - 1) >> 20 << 20 }

// minGoMemory is the least soft limit of Go's memory, in bytes.
const minGoMemory = 64 << 20

// limitGoMemory sets the soft limit of Go's memory in a container that has a limit, unless
// GOMEMLIMIT does: to nine tenths, less the memory index, whose large pieces are not Go's. Without
// it, garbage may take as much memory as what is held.
func limitGoMemory(cfg *config.Config, store *remoteStore) {
	limit, err := memlimit.FromCgroup()
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(max(int64(limit)/10*9-indexMemory(cfg, store), minGoMemory))
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

// accountBytes returns limits.max_account as server.Config.AccountBytes.
func accountBytes(most config.Size) int {
	if most == 0 {
		return -1
	}
	return int(most)
}
