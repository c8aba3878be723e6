//go:build linux && hitline_attack

package attack

import (
	"encoding/binary"
	"net"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// row is an attack.
type row struct {
	name, what string
	spec       serverSpec
	ranks      []coordinator.GroupRank // that hold a block; nil: rank 0 of group 0
	want       expectation             // of the innocent
	files      uint64                  // open files that it needs; 0: few
	tls        bool                    // runs with -tls only
	bystanders bool                    // what they wait counts, too

	prepare prepare
}

// prepare connects and makes the requests. The function that it returns runs the attack.
type prepare func(a *attacker) (run func(), err error)

// allRows lists the attacks.
func allRows() []row {
	return slices.Concat(
		requestRows(), explainRows(), cheapRows(), indexRows(), lookupRows(), storeRows(),
		memoryRows(), metricsRows(), httpRows(), connRows(), tlsRows(),
	)
}

// alone prepares an attack that needs no preparation.
func alone(run func(a *attacker)) prepare {
	return func(a *attacker) (func(), error) { return func() { run(a) }, nil }
}

// onConns prepares an attack on n connections.
func onConns(n int, run func(a *attacker, conns []net.Conn)) prepare {
	return func(a *attacker) (func(), error) {
		conns, err := a.open(n)
		return func() { run(a, conns) }, err
	}
}

// bursts prepares an attack by one burst: blob, a number of requests with as many replies, on each
// of n connections.
func bursts(n int, blob func() (blob []byte, requests int)) prepare {
	return func(a *attacker) (func(), error) {
		conns, err := a.open(n)
		b, requests := blob()
		return func() { a.burst(conns, b, requests, requests) }, err
	}
}

// repeated is a blob of one request, repeated.
func repeated(request []byte, size int) func() ([]byte, int) {
	return func() ([]byte, int) { return repeat(request, size) }
}

// requestRows are bursts of stat and reset.
func requestRows() []row {
	stat, reset := request(netproto.TagStat), request(netproto.TagReset)
	storeAndReset := slices.Concat(store(coordinator.GroupRank{}, randomBytes("store and reset", 32), 32), reset)
	return []row{
		{name: "stat-8", what: "8 connections send 64 KiB of stat requests each, in one burst",
			prepare: bursts(8, repeated(stat, 64*kib))},
		{name: "stat-64", what: "64 connections send 64 KiB of stat requests each, in one burst",
			prepare: bursts(64, repeated(stat, 64*kib))},
		{name: "reset-1", what: "1 connection sends 64 KiB of reset requests in one burst", want: atMost,
			prepare: bursts(1, repeated(reset, 64*kib))},
		{name: "reset-8", what: "8 connections send 64 KiB of reset requests each, in one burst", want: atMost,
			prepare: bursts(8, repeated(reset, 64*kib))},
		{name: "store-reset", what: "8 connections send 64 KiB each: a store of one key and a reset, alternately", want: atMost,
			prepare: bursts(8, func() ([]byte, int) {
				blob, pairs := repeat(storeAndReset, 64*kib)
				return blob, 2 * pairs
			})},
	}
}

// explainRows are large explain requests.
func explainRows() []row {
	const hashes = 131072
	short := func() ([]byte, int) { return explain(randomBytes("short", hashes), 1), 1 }
	random := func() ([]byte, int) { return explain(randomBytes("random", 32*hashes), 32), 1 }
	present := func(conns int) prepare {
		return func(a *attacker) (func(), error) {
			chain := randomBytes("present", 32*hashes)
			if err := a.storeKeys(coordinator.GroupRank{}, chain, 32); err != nil {
				return nil, err
			}
			return bursts(conns, func() ([]byte, int) { return explain(chain, 32), 1 })(a)
		}
	}
	return []row{
		{name: "explain-short-1", what: "1 explain of 131,072 hashes of 1 byte: 128 KiB", prepare: bursts(1, short)},
		{name: "explain-short-8", what: "8 connections send such an explain at once", prepare: bursts(8, short)},
		{name: "explain-present-1", what: "1 explain of 131,072 stored hashes of 32 bytes: 4 MiB", prepare: present(1)},
		{name: "explain-present-8", what: "8 connections send such an explain at once", prepare: present(8)},
		{name: "explain-random-1", what: "1 explain of 131,072 hashes of 32 bytes that are not stored: 4 MiB", prepare: bursts(1, random)},
		{name: "explain-random-8", what: "8 connections send such an explain at once", prepare: bursts(8, random)},
	}
}

// cheapRows are floods of requests and commands that cost their sender little.
func cheapRows() []row {
	unknown := netproto.AppendFrame(nil, []byte("x"), false)
	ping := request(netproto.TagPing, randomBytes("ping", 60*1000))
	shortKeys := make([]byte, 0, 2<<16)
	for i := range 1 << 16 {
		shortKeys = binary.BigEndian.AppendUint16(shortKeys, uint16(i))
	}
	zmtpPing := command("PING", "\x00\x00")
	zmtp := func(blob []byte, requests, replies int) prepare {
		return func(a *attacker) (func(), error) {
			conns, err := a.openZMTP(4)
			return func() { a.burst(conns, blob, requests, replies) }, err
		}
	}
	pings, numPings := repeat(zmtpPing, 64*kib)
	unknowns, numUnknown := repeat(command("X", ""), 64*kib)
	return []row{
		{name: "unknown", what: "32 connections send 512 KiB of unknown requests each, in one burst",
			prepare: bursts(32, repeated(unknown, 512*kib))},
		{name: "log-pipe", what: "the same, while the server logs at level debug to a pipe that nobody reads",
			spec:    serverSpec{env: []string{"HITLINE_LOG_LEVEL=debug"}, unreadLog: true},
			prepare: bursts(32, repeated(unknown, 512*kib))},
		{name: "explain-empty", what: "8 connections send 64 KiB of explains without hashes each, in one burst",
			prepare: bursts(8, repeated(explain(nil, 0), 64*kib))},
		{name: "frames-empty", what: "8 connections send 64 KiB of the bytes 00 00 each: messages of one empty frame",
			prepare: bursts(8, repeated([]byte{0, 0}, 64*kib))},
		{name: "ping", what: "16 connections send pings of 60,000 bytes, each after the reply to the one before",
			prepare: onConns(16, func(a *attacker, conns []net.Conn) {
				a.forDuration(len(conns), func(i int) bool { return a.write(conns[i], ping, 1) && a.read(conns[i], 1) })
			})},
		{name: "zmtp-ping", what: "4 connections send 64 KiB of ZMTP PING commands each, in one burst",
			prepare: zmtp(pings, numPings, numPings)},
		{name: "zmtp-unknown", what: "4 connections send 64 KiB of unknown ZMTP commands each, in one burst",
			prepare: zmtp(append(unknowns, zmtpPing...), numUnknown+1, 1)},
		{name: "store-short", what: "8 connections send 4 stores of all 65,536 keys of 2 bytes each, in one burst",
			prepare: bursts(8, repeated(store(coordinator.GroupRank{}, shortKeys, 2), 4*(len(shortKeys)+64)))},
	}
}
