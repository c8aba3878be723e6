//go:build linux

package main

import (
	"encoding/binary"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/netproto"
)

// attack is a row of the table.
type attack struct {
	name, help string
	spec       serverSpec
	ranks      []netproto.GroupRank // that hold a block; nil: rank 0 of group 0
	want       expectation          // of the innocent
	files      uint64               // open files that it needs; 0: few
	longOnly   bool                 // runs with --long only
	tlsOnly    bool                 // runs with --tls only

	// prepare connects and makes the requests. The function that it returns runs the attack.
	prepare func(a *attacker) (run func() error, err error)
	// fake starts a fake store, which lives as long as the process.
	fake func() (addr string, err error)
}

// attacks lists the rows.
func attacks() []attack {
	return slices.Concat(
		requestAttacks(), explainAttacks(), cheapAttacks(), indexAttacks(), lookupAttacks(),
		storeAttacks(), memoryAttacks(), metricsAttacks(), connAttacks(), tlsAttacks(),
	)
}

// findAttack returns the row of a name.
func findAttack(name string) (attack, bool) {
	for _, row := range attacks() {
		if row.name == name {
			return row, true
		}
	}
	return attack{}, false
}

// selectAttacks returns the rows that a list selects. Its parts, separated by commas, are names,
// beginnings of names up to a hyphen, or patterns with * and ?. An empty list selects all. bad is
// the first part that selects nothing.
func selectAttacks(list string) (rows []attack, bad string) {
	all := attacks()
	if list == "" {
		return all, ""
	}
	selected := make([]bool, len(all))
	for part := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		found := false
		for i, row := range all {
			match, _ := path.Match(part, row.name) // a malformed pattern matches nothing
			if match || strings.HasPrefix(row.name, part+"-") {
				selected[i], found = true, true
			}
		}
		if !found {
			return nil, part
		}
	}
	for i, row := range all {
		if selected[i] {
			rows = append(rows, row)
		}
	}
	return rows, ""
}

// bursts returns the prepare function of an attack by one burst: blob, a number of requests
// with as many replies, on each of so many connections.
func bursts(conns int, blob func() (blob []byte, requests int)) func(*attacker) (func() error, error) {
	return func(a *attacker) (func() error, error) {
		opened, err := a.open(conns)
		if err != nil {
			return nil, err
		}
		b, requests := blob()
		return func() error { return a.burst(opened, b, requests, requests) }, nil
	}
}

// repeated is a blob of one request, repeated.
func repeated(request []byte, size int) func() ([]byte, int) {
	return func() ([]byte, int) { return repeat(request, size) }
}

const kib, mib = 1 << 10, 1 << 20

// requestAttacks are bursts of stat and reset.
func requestAttacks() []attack {
	stat, reset := request(netproto.TagStat), request(netproto.TagReset)
	oneStore := store(netproto.GroupRank{}, randomBytes("store and reset", 32), 32)
	return []attack{
		{name: "stat-8", help: "8 connections send 64 KiB of stat requests each, in one burst",
			prepare: bursts(8, repeated(stat, 64*kib))},
		{name: "stat-64", help: "64 connections send 64 KiB of stat requests each, in one burst",
			prepare: bursts(64, repeated(stat, 64*kib))},
		{name: "reset-1", help: "1 connection sends 64 KiB of reset requests in one burst", want: atMost,
			prepare: bursts(1, repeated(reset, 64*kib))},
		{name: "reset-8", help: "8 connections send 64 KiB of reset requests each, in one burst", want: atMost,
			prepare: bursts(8, repeated(reset, 64*kib))},
		{name: "store-reset", help: "8 connections send 64 KiB each: a store of one key and a reset, alternately", want: atMost,
			prepare: bursts(8, func() ([]byte, int) {
				blob, pairs := repeat(append(append([]byte(nil), oneStore...), reset...), 64*kib)
				return blob, 2 * pairs
			})},
	}
}

// explainAttacks are large explain requests.
func explainAttacks() []attack {
	const hashes = 131072
	short := func() ([]byte, int) { return explain(randomBytes("short", hashes), 1), 1 }
	random := func() ([]byte, int) { return explain(randomBytes("random", 32*hashes), 32), 1 }
	present := func(conns int) func(a *attacker) (func() error, error) {
		return func(a *attacker) (func() error, error) {
			chain := randomBytes("present", 32*hashes)
			if err := a.storeKeys(netproto.GroupRank{}, chain, 32); err != nil {
				return nil, err
			}
			return bursts(conns, func() ([]byte, int) { return explain(chain, 32), 1 })(a)
		}
	}
	return []attack{
		{name: "explain-short-1", help: "1 explain of 131,072 hashes of 1 byte: 128 KiB", prepare: bursts(1, short)},
		{name: "explain-short-8", help: "8 connections send such an explain at once", prepare: bursts(8, short)},
		{name: "explain-present-1", help: "1 explain of 131,072 stored hashes of 32 bytes: 4 MiB", prepare: present(1)},
		{name: "explain-present-8", help: "8 connections send such an explain at once", prepare: present(8)},
		{name: "explain-random-1", help: "1 explain of 131,072 hashes of 32 bytes that are not stored: 4 MiB", prepare: bursts(1, random)},
		{name: "explain-random-8", help: "8 connections send such an explain at once", prepare: bursts(8, random)},
	}
}

// cheapAttacks are floods of requests and commands that cost their sender little.
func cheapAttacks() []attack {
	const pingBytes = 60 * 1000
	emptyExplain := explain(nil, 0)
	shortKeys := make([]byte, 0, 2<<16)
	for i := range 1 << 16 {
		shortKeys = binary.BigEndian.AppendUint16(shortKeys, uint16(i))
	}
	zmtpPing := command("PING", "\x00\x00")
	return []attack{
		{name: "unknown", help: "32 connections send 512 KiB of unknown requests each, in one burst",
			prepare: bursts(32, repeated(unknownRequest(), 512*kib))},
		{name: "log-pipe", help: "the same, while the server logs at level debug to a pipe that nobody reads",
			spec:    serverSpec{env: []string{"HITLINE_LOG_LEVEL=debug"}, unreadLog: true},
			prepare: bursts(32, repeated(unknownRequest(), 512*kib))},
		{name: "explain-empty", help: "8 connections send 64 KiB of explains without hashes each, in one burst",
			prepare: bursts(8, repeated(emptyExplain, 64*kib))},
		{name: "frames-empty", help: "8 connections send 64 KiB of the bytes 00 00 each: messages of one empty frame",
			prepare: func(a *attacker) (func() error, error) {
				conns, err := a.open(8)
				if err != nil {
					return nil, err
				}
				blob, requests := repeat([]byte{0, 0}, 64*kib)
				last := request(netproto.TagPing)
				blob = append(blob, last...)
				return func() error {
					a.untilPing(conns, blob, requests+1)
					return nil
				}, nil
			}},
		{name: "ping", help: "16 connections send pings of 60,000 bytes, each after the reply to the one before, for SECONDS",
			prepare: func(a *attacker) (func() error, error) {
				conns, err := a.open(16)
				ping := request(netproto.TagPing, randomBytes("ping", pingBytes))
				return func() error {
					a.forDuration(len(conns), func(i int) bool { return a.write(conns[i], ping, 1) && a.read(conns[i], 1) == 1 })
					return nil
				}, err
			}},
		{name: "zmtp-ping", help: "4 connections send 64 KiB of ZMTP PING commands each, in one burst",
			prepare: func(a *attacker) (func() error, error) {
				conns, err := a.openZMTP(4)
				blob, requests := repeat(zmtpPing, 64*kib)
				return func() error { return a.burst(conns, blob, requests, requests) }, err
			}},
		{name: "zmtp-unknown", help: "4 connections send 64 KiB of unknown ZMTP commands each, in one burst",
			prepare: func(a *attacker) (func() error, error) {
				conns, err := a.openZMTP(4)
				blob, requests := repeat(command("X", ""), 64*kib)
				blob = append(blob, zmtpPing...)
				return func() error { return a.burst(conns, blob, requests+1, 1) }, err
			}},
		{name: "store-short", help: "8 connections send 4 stores of all 65,536 keys of 2 bytes each, in one burst",
			prepare: bursts(8, repeated(store(netproto.GroupRank{}, shortKeys, 2), 4*(len(shortKeys)+64)))},
	}
}

// isDone says whether the bytes of a stream end with the reply 01 in a message of its own.
func isDone(tail []byte) bool { return strings.HasSuffix(string(tail), "\x00\x01\x01") }

// untilPing is burst where the number of replies is not known: it ends when the last bytes that
// were read are the reply to a ping.
func (a *attacker) untilPing(conns []net.Conn, blob []byte, requests int) {
	var running sync.WaitGroup
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(burstTimeout)) // it may be lost
		running.Go(func() { a.write(conn, blob, requests) })
		running.Go(func() {
			var counter replyCounter
			var tail []byte
			buf := make([]byte, 256*kib)
			for !isDone(tail) {
				n, err := conn.Read(buf)
				counter.feed(buf[:n])
				tail = append(tail[:0], buf[max(0, n-8):n]...)
				if err != nil {
					break
				}
			}
			a.replies.Add(int64(counter.messages))
		})
	}
	running.Wait()
}
