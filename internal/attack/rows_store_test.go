//go:build linux && hitline_attack

package attack

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/netproto"
)

// perPacket is how many requests of a connection are served before the clock is looked at.
const perPacket = 8

// storeRows are lookups over a store with leases: event loops answer them from what was found.
func storeRows() (rows []row) {
	rows = append(rows, row{
		name: "store-fin", what: "64 connections send 1,024 lookups of 8 hashes that nobody has asked for, and then FIN, again and again",
		spec: serverSpec{fullStore: true, env: []string{"HITLINE_POOL={model_name: m}"}}, prepare: alone(sendFIN),
	})
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

// sendFIN opens connections that send lookups and FIN. Each must have all replies.
func sendFIN(a *attacker) {
	const conns, lookups, hashes = 64, 1024, 8
	var number [conns]int
	a.forDuration(conns, func(i int) bool {
		number[i]++
		chains := randomBytes(fmt.Sprint("fin ", i, number[i]), lookups*hashes*32)
		var blob []byte
		for chain := range slices.Chunk(chains, hashes*32) {
			blob = append(blob, lookup(chain, 32)...)
		}
		conn, err := dial(a.addr)
		if err != nil {
			a.fail(err)
			return false
		}
		defer conn.Close()
		a.opened.Add(1)
		_ = conn.SetDeadline(time.Now().Add(burstTimeout)) // it may be lost
		var writer sync.WaitGroup
		writer.Go(func() {
			a.write(conn, blob, lookups)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite() // the reader sees that it is lost
		})
		all := a.read(conn, lookups)
		writer.Wait()
		if !all {
			a.fail(errors.New("attack: a connection that has sent FIN does not get all replies"))
		}
		return all
	})
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
