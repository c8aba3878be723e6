package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"golang.org/x/sys/unix"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/netproto"
)

// allReplies collects all that a session writes.
type allReplies struct{ bytes.Buffer }

func (*allReplies) OutboundBuffered() int { return 0 }

// count returns the number of replies.
func (r *allReplies) count(t *testing.T) (n int) {
	t.Helper()
	for rest := r.Bytes(); len(rest) > 0; {
		flags, header, size := rest[0], 2, uint64(rest[1])
		if flags&2 != 0 { // LONG
			header, size = 9, binary.BigEndian.Uint64(rest[1:])
		}
		if rest = rest[uint64(header)+size:]; flags&1 == 0 { // no MORE
			n++
		}
	}
	return n
}

// hybridPool is a pool whose groups can disagree.
var hybridPool = coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
	{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 33},
}}

func serverOf(t testing.TB, pool coordinator.Pool) *Server {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 256 << 20}})
	require.NoError(t, err)
	server, err := New(service, Config{})
	require.NoError(t, err)
	return server
}

// storeDisagreeing stores blocks so that each group shortens the hit of the others by little.
func storeDisagreeing(t *testing.T, server *Server, n int) []byte {
	t.Helper()
	hashes := lookuptest.Chain("disagree", n, 32)
	store := func(group uint16, keep func(i int) bool, stride int) {
		var keys []byte
		for i := stride - 1; i < n; i += stride {
			if keep(i / stride) {
				keys = append(keys, hashes[i*32:(i+1)*32]...)
			}
		}
		require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{Group: group}, coordinator.NewHashes(keys, 32)))
	}
	store(0, func(int) bool { return true }, 1)
	store(1, func(i int) bool { return i%2 == 0 }, 1)
	store(2, func(i int) bool { return i%4 < 2 }, 2)
	return hashes
}

func rawLookup(hashes []byte, hashLen int) []byte {
	n := len(hashes) / hashLen
	return append(netproto.AppendLookup(nil, nil, uint32(16*n), hashLen, len(hashes)), hashes...)
}

func rawExplain(hashes []byte, hashLen int) []byte {
	n := len(hashes) / hashLen
	return append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, uint32(16*n), 0, hashLen, len(hashes)), hashes...)
}

// turn serves bytes in a turn, as conn.serve does.
func serveTurn(ses *session, p []byte) error {
	ses.conn.beginTurn()
	return ses.conn.endTurn(ses.conn.receive(p))
}

// wake wakes a session in a turn, as conn.serve does.
func wake(ses *session) error {
	ses.conn.beginTurn()
	return ses.conn.endTurn(ses.conn.wake())
}

// driven is a session whose event loop is the test.
type driven struct {
	*session
	got        allReplies
	wakeSocket int // of its event loop; the test reads it
}

// drive returns a session of a server that is not started. Workers serve its jobs.
func drive(t *testing.T, server *Server) *driven {
	t.Helper()
	if server.workers[computing] == nil {
		server.workers = startWorkers(server.backend)
		t.Cleanup(server.workers.stop)
	}
	d := new(driven)
	fds, err := sockets.Pair()
	require.NoError(t, err)
	d.wakeSocket = fds[0]
	loop := server.newEventLoop(fds[1])
	server.loops.add(new(testLoop), loop)
	d.session = sessionOf(server, loop, &d.got, openListener(nil))
	t.Cleanup(func() {
		d.conn.close()
		require.NoError(t, errors.Join(unix.Close(fds[0]), unix.Close(fds[1])))
	})
	return d
}

// next gives the session its next turn, once a job has ended or it has kept bytes to be served.
func (d *driven) next(t *testing.T) {
	t.Helper()
	_, err := unix.Read(d.wakeSocket, make([]byte, 1))
	require.NoError(t, err)
	loop := d.conn.loop
	require.Same(t, d.conn, loop.pop())
	loop.mu.Lock()
	loop.signaled = false
	loop.mu.Unlock()
	require.NoError(t, wake(d.session))
}

// finish wakes the session until all that it has received is answered.
func (d *driven) finish(t *testing.T) {
	t.Helper()
	for d.conn.unanswered.Load() > 0 || d.conn.isKeeping() {
		d.next(t)
	}
}

// numKeeping returns how many connections keep bytes behind a change.
func (s *Server) numKeeping() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.all {
		if c.kept.Size() > 0 {
			n++
		}
	}
	return n
}

// TestKeptIsServedInOrder sends changes and what follows them in one write.
func TestKeptIsServedInOrder(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		gate := lookuptest.NewGate()
		if store != nil {
			store.Holding(gate, "reset", "")
		}
		server := startWith(t, store, settingsOf(t, access.All, tokenOf("reads", access.ReadOnly|access.Pool)))
		keys, p := lookuptest.Chain("a", 8, 32), lookuptest.DialPeer(t, server.Addrs()[0])
		description, err := json.Marshal(modelPool("not served"))
		require.NoError(t, err)
		lookup := lookupOf("", keys)
		p.Send(t, slices.Concat(
			storeOf("", netproto.TagStore, keys), lookup, plainOf("", netproto.TagReset), lookup, storeOf("", netproto.TagStore, keys[:5*32]), lookup,
			lookuptest.Encode(authFrames("reads")...), plainOf("", netproto.TagReset), lookup,
			plainOf("", netproto.TagPool, description), lookup, plainOf("", netproto.TagPool, []byte(`{"name": ""}`)), lookup,
		))
		if store != nil {
			lookuptest.Eventually(t, "it waits for the reset", func() bool { return gate.Held.Load() == 1 && server.numKeeping() == 1 })
			require.EqualValues(t, 1, server.Stat().InFlight, "what is kept is not read")
			close(gate.Open)
		}
		p.Expect(t, "01", hitText(8), "01", hitText(0), "01", hitText(5), "01", "00", hitText(5), "00", "00", "01", hitText(5))
		require.EqualValues(t, 1, server.Stat().NotAllowed["reset"])
		require.Zero(t, server.numKeeping())
	})
}

// TestKeptBytesAreBounded has peers send pings behind a reset that takes long: as much as is kept, and more.
func TestKeptBytesAreBounded(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "reset", "")
	server := startRemote(t, store, patient, Limits{MaxMessage: 1 << 20, MaxUnsent: 16 << 20})
	reset, ping := plainOf("", netproto.TagReset), plainOf("", netproto.TagPing, make([]byte, 1000))
	most := (1<<20 + maxInFlightBytes) / len(ping)

	flood := lookuptest.DialPeer(t, server.Addrs()[0])
	flood.Send(t, reset)
	lookuptest.Eventually(t, "the reset has begun", func() bool { return gate.Held.Load() == 1 })
	_, _ = flood.Write(bytes.Repeat(ping, most+2)) // it is closed meanwhile
	flood.ClosedWithin(t)
	lookuptest.Eventually(t, "it is counted", func() bool { return server.peers.closed[closedInFlight].Load() == 1 })
	lookuptest.Eventually(t, "only what the reset takes is held", func() bool { return server.heldBytes() < 2*jobBytes })

	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, reset)
	lookuptest.Eventually(t, "it is received", func() bool { return server.Stat().InFlight == 1 })
	p.Send(t, bytes.Repeat(ping, most))
	lookuptest.Eventually(t, "all is kept", func() bool { return server.heldBytes() >= int64(most*len(ping)) })
	require.EqualValues(t, 1, server.Stat().InFlight)
	close(gate.Open)
	for range most + 1 {
		p.Expect(t, "01")
	}
}

// TestKeptIsServedInPieces has the time of a turn be over before all that was kept is served: others
// are served before the rest.
func TestKeptIsServedInPieces(t *testing.T) {
	d := drive(t, unstarted(t))
	const pings = 100_000
	require.NoError(t, serveTurn(d.session, append(plainOf("", netproto.TagReset), bytes.Repeat(plainOf("", netproto.TagPing), pings)...)))
	turns, began := 0, int64(0)
	for ; d.conn.isKeeping(); turns++ {
		began = monotime.Now()
		d.next(t)
	}
	require.Equal(t, pings+1, d.got.count(t))
	require.Greater(t, turns, 2)
	require.GreaterOrEqual(t, d.conn.times.lastActive.Load(), began, "idle since the last of them")
}

// TestIdleBeginsBehindWhatWasKept has a change take longer than a connection may be idle.
func TestIdleBeginsBehindWhatWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
		store.Holding(gate, "reset", "")
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		server, err := New(service, Config{Limits: Limits{IdleTimeout: time.Second}})
		require.NoError(t, err)
		d := drive(t, server)
		require.NoError(t, serveTurn(d.session, append(plainOf("", netproto.TagReset), plainOf("", netproto.TagPing)...)))
		time.Sleep(lookuptest.Patience / 2)
		require.Equal(t, notClosed, d.conn.overdue(monotime.Now()))
		close(gate.Open)
		d.finish(t)
		require.Equal(t, 2, d.got.count(t))
		time.Sleep(time.Second)
		require.Equal(t, notClosed, d.conn.overdue(monotime.Now()))
		time.Sleep(time.Millisecond)
		require.Equal(t, closedIdleTimeout, d.conn.overdue(monotime.Now()))
	})
}

// TestMessageTimeoutBehindWhatWasKept has a change take long, behind which a request has begun: its time begins when it is
// read.
func TestMessageTimeoutBehindWhatWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held, limit = lookuptest.Patience / 2, lookuptest.Patience * 3 / 4
		store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
		store.Holding(gate, "reset", "")
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		server, err := New(service, Config{Limits: Limits{MessageTimeout: limit}})
		require.NoError(t, err)
		d := drive(t, server)
		require.NoError(t, serveTurn(d.session, append(plainOf("", netproto.TagReset), plainOf("", netproto.TagPing)[:3]...)))
		time.Sleep(held)
		close(gate.Open)
		d.finish(t)
		time.Sleep(limit)
		require.Equal(t, notClosed, d.conn.overdue(monotime.Now()))
		time.Sleep(time.Millisecond)
		require.Equal(t, closedMessageTimeout, d.conn.overdue(monotime.Now()))
	})
}

// TestLargeLookupIsAJob has a lookup whose answer takes long: a worker makes it, and what follows waits.
func TestLargeLookupIsAJob(t *testing.T) {
	server := serverOf(t, hybridPool)
	hashes := storeDisagreeing(t, server, 1<<17)
	want, err := server.pools.own.service.Lookup(t.Context(), 16<<17, coordinator.NewHashes(hashes, 32))
	require.NoError(t, err)
	d := drive(t, server)
	require.NoError(t, serveTurn(d.session, append(rawLookup(hashes, 32), plainOf("", netproto.TagPing)...)))
	require.True(t, d.conn.isKeeping())
	require.EqualValues(t, 1, d.conn.unanswered.Load())
	require.Zero(t, d.got.Len())
	d.finish(t)
	p := &lookuptest.Peer{In: d.got.Bytes()}
	p.Expect(t, fmt.Sprintf("%08x", want.Tokens), "01")
	require.EqualValues(t, 1, server.Stat().Requests["lookup"])

	require.NoError(t, serveTurn(d.session, rawLookup(hashes[:64*32], 32)))
	require.Zero(t, d.conn.unanswered.Load(), "one of few hashes is answered as it arrives")
	require.Equal(t, 3, d.got.count(t))
}
