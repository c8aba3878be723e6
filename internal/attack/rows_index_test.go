//go:build linux && hitline_attack

package attack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// indexRows make the index work.
func indexRows() []row {
	rows := []row{{name: "ranks", what: "4 connections store keys on random ranks of 32",
		spec:    serverSpec{env: []string{"HITLINE_POOL={tp_size: 32}"}},
		ranks:   tpRanks(32),
		prepare: storeOnRandomRanks}}
	rows = append(rows, row{name: "starts", what: "4 connections look up from the last start that there can be, in requests without hashes",
		spec: serverSpec{env: []string{fmt.Sprintf("HITLINE_POOL={scheduler_block_size: 64, groups: [%s]}",
			strings.TrimSuffix(strings.Repeat("{kind: sliding_window, block_size: 16, sliding_window: 17}, ", startsGroups), ", "))}},
		ranks: groupRanks(startsGroups), prepare: lookUpFarStarts})
	return append(rows, row{name: "lengths", what: "208 stores of one key of 1 to 64 bytes each, into a full index of 64 MiB",
		spec: serverSpec{env: []string{"HITLINE_BACKEND_MEMORY_MAX_BYTES=64MiB", fmt.Sprintf("HITLINE_POOL={groups: [%s]}",
			strings.TrimSuffix(strings.Repeat("{kind: full_attention, block_size: 16}, ", lengthsGroups), ", "))}},
		ranks: groupRanks(lengthsGroups), want: atMost, prepare: storeLengths(1 << 20 * 5 / 4)})
}

// tpRanks returns the tensor ranks of group 0.
func tpRanks(n int) (ranks []coordinator.GroupRank) {
	for i := range n {
		ranks = append(ranks, coordinator.GroupRank{TPRank: uint16(i)})
	}
	return ranks
}

// storeOnRandomRanks stores keys one by one and again and again, each time on a random rank. It
// does not wait for replies.
func storeOnRandomRanks(a *attacker) (func(), error) {
	const numConns, hashLen, numKeys, perWrite = 4, 32, 1 << 17, 2048
	keys := randomBytes("ranks", numKeys*hashLen)
	random := make([]*rand.Rand, numConns)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(uint64(i), 1))
	}
	conns, err := a.open(numConns)
	return func() {
		a.stream(conns, func(i int) ([]byte, int) {
			var blob []byte
			for range perWrite {
				at := coordinator.GroupRank{TPRank: uint16(random[i].IntN(32))}
				key := random[i].IntN(numKeys) * hashLen
				blob = append(blob, store(at, keys[key:key+hashLen], hashLen)...)
			}
			return blob, perWrite
		})
	}, err
}

// startsGroups is the number of groups of the pool that lookUpFarStarts looks up in.
const startsGroups = 4

// lookUpFarStarts sends requests of a few bytes, each of a lookup that begins behind 2,000,000 hashes.
func lookUpFarStarts(a *attacker) (func(), error) {
	const numConns, perWrite = 4, 64
	blob := bytes.Repeat(lookupFrom(2_000_000), perWrite)
	conns, err := a.open(numConns)
	return func() { a.stream(conns, func(int) ([]byte, int) { return blob, perWrite }) }, err
}

// lengthsGroups is the number of groups of the pool that storeLengths stores in.
const lengthsGroups = 4

// storeLengths fills the index with numKeys keys of 32 bytes, and then stores 208 keys of all
// lengths.
func storeLengths(numKeys int) prepare {
	return func(a *attacker) (func(), error) {
		const perStore, stores = 16384, 208
		err := a.storeAll(numKeys/perStore, func(i int) []byte {
			return store(coordinator.GroupRank{}, randomBytes(fmt.Sprint("fill ", i), perStore*32), 32)
		})
		if err != nil {
			return nil, err
		}
		return bursts(1, func() (blob []byte, requests int) {
			for i := range stores {
				hashLen, at := i%64+1, coordinator.GroupRank{Group: uint16(i / 64)}
				blob = append(blob, store(at, randomBytes(fmt.Sprint("length ", i), hashLen), hashLen)...)
			}
			return blob, stores
		})(a)
	}
}

// groupRanks returns rank 0 of so many groups.
func groupRanks(n int) (ranks []coordinator.GroupRank) {
	for i := range n {
		ranks = append(ranks, coordinator.GroupRank{Group: uint16(i)})
	}
	return ranks
}

// mostHashes is the greatest even number of hashes of 32 bytes that fit the largest message: a
// lookup is of whole blocks of 32 tokens.
const mostHashes = 64*mib/32 - 2

// lookupRows are lookups of as many hashes as a message may have.
func lookupRows() []row {
	const full, window, mamba = "{kind: full_attention, block_size: 16}", "{kind: sliding_window, block_size: 16, sliding_window: 16}", "{kind: mamba, block_size: 32}"
	const wide = "{kind: sliding_window, block_size: 16, sliding_window: 8388608}"
	alternating := func(conns, groups int) prepare {
		return func(a *attacker) (func(), error) {
			chain := randomBytes("alternating", mostHashes*32)
			if err := a.storeAlternating(chain, groups-2); err != nil {
				return nil, err
			}
			return bursts(conns, func() ([]byte, int) { return lookup(chain, 32), 1 })(a)
		}
	}
	random := func(conns, _ int) prepare {
		return bursts(conns, func() ([]byte, int) { return lookup(randomBytes("absent", mostHashes*32), 32), 1 })
	}
	var rows []row
	for _, l := range []struct {
		name, what string
		groups     []string
		prepare    func(conns, groups int) prepare
	}{
		{"groups", "over three groups that never end a hit together", []string{full, window, mamba}, alternating},
		{"wide", "over these and a window of 524,288 stored blocks", []string{full, wide, window, mamba}, alternating},
		{"random", "that are not stored", []string{full, window, mamba}, random},
	} {
		for _, conns := range []int{1, 4} {
			rows = append(rows, row{
				name: fmt.Sprintf("lookup-%s-%d", l.name, conns),
				what: fmt.Sprintf("%d at once: lookups of 2,097,150 hashes, 64 MiB, %s", conns, l.what),
				spec: serverSpec{env: []string{"HITLINE_POOL={groups: [" + strings.Join(l.groups, ", ") + "]}"}}, ranks: groupRanks(len(l.groups)),
				prepare: l.prepare(conns, len(l.groups)),
			})
		}
	}
	return rows
}

// storeAlternating stores a chain in whole groups. Of the two groups behind them one gets every
// second of its ends of 32 tokens, and the other the others: each alone would end the hit at most
// 32 tokens before the other.
func (a *attacker) storeAlternating(chain []byte, whole int) error {
	stored := make([][]byte, whole+2)
	for i := range whole {
		stored[i] = chain
	}
	for i := 0; 32*(2*i+2) <= len(chain); i++ {
		end := 2*i + 1 // the last of the two hashes of 32 tokens
		stored[whole+i%2] = append(stored[whole+i%2], chain[32*end:32*(end+1)]...)
	}
	for group, keys := range stored {
		if err := a.storeKeys(coordinator.GroupRank{Group: uint16(group)}, keys, 32); err != nil {
			return err
		}
	}
	return nil
}
