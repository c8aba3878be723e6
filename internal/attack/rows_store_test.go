//go:build linux && hitline_attack

package attack

import (
	"bytes"
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// perPacket is how many requests of a connection are served before the clock is looked at.
const perPacket = 8

// storeRows are lookups over a store with leases: event loops answer them from what was found.
func storeRows() (rows []row) {
	known := bytes.Repeat(lookup(randomBytes("known", 2048*32), 32), perPacket)
	for _, groups := range []int{1, 10, 64} {
		pool := "{kind: full_attention, block_size: 16}"
		for variant := range groups - 1 {
			pool += fmt.Sprintf(", {kind: sliding_window, block_size: 16, sliding_window: 1024, variant: %d}", variant)
		}
		add := func(name string, conns int, what string, packet func(conn, number int) []byte) {
			rows = append(rows, row{
				name:    fmt.Sprintf("store-%s-%d-%d", name, groups, conns),
				what:    fmt.Sprintf("%d connections send packets of 8 lookups, in a pool of %d groups: %s", conns, groups, what),
				spec:    serverSpec{fullStore: true, env: []string{"HITLINE_POOL={model_name: m, groups: [" + pool + "]}"}},
				prepare: packets(conns, packet),
			})
		}
		for _, conns := range []int{1, 64} {
			add("starts", conns, "of one hash from the last start that there can be, half of them of found blocks", farLookups)
			add("known", conns, "of 2,048 hashes whose blocks were found", func(int, int) []byte { return known })
		}
		add("found", 4, "of 2,048 hashes that nobody has asked for", newChains)
	}
	return rows
}

// packets prepares n connections that send packets, each after the replies to the one before. packet is
// called with numbers from 0 on.
func packets(n int, packet func(conn, number int) []byte) prepare {
	return func(a *attacker) (func(), error) {
		conns, err := a.open(n)
		sent := make([]int, n)
		return func() {
			a.forDuration(n, func(i int) bool {
				sent[i]++
				return a.write(conns[i], packet(i, sent[i]-1), perPacket) && a.read(conns[i], perPacket)
			})
		}, err
	}
}

// farLookups returns lookups of one hash from the last start that there can be. Half of them are those of all
// packets.
func farLookups(conn, number int) (packet []byte) {
	const hashLen, start = 32, 1_999_999 * blockTokens
	for i := range perPacket {
		label := "far away"
		if i%2 == 0 {
			label = fmt.Sprint("far away ", conn, number, i)
		}
		packet = netproto.AppendLookupFrom(packet, nil, netproto.TagLookupFrom, start+blockTokens, start, hashLen, hashLen)
		packet = append(packet, randomBytes(label, hashLen)...)
	}
	return packet
}

// newChains returns lookups of chains that no other packet has.
func newChains(conn, number int) (packet []byte) {
	for i := range perPacket {
		packet = append(packet, lookup(randomBytes(fmt.Sprint("new chain ", conn, number, i), 2048*32), 32)...)
	}
	return packet
}
