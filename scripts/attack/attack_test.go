//go:build linux

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// requests collects what a Reader reads.
type requests struct {
	list    []netproto.Request // their slices are not kept
	hashes  []int              // of each, in bytes
	control [][]byte
	dropped int
}

func (r *requests) Begin(*netproto.Request) bool {
	r.hashes = append(r.hashes, 0)
	return true
}

func (r *requests) Hashes(_ *netproto.Request, hashes []byte) bool {
	r.hashes[len(r.hashes)-1] += len(hashes)
	return true
}

func (r *requests) End(q *netproto.Request)   { r.list = append(r.list, *q) }
func (r *requests) Dropped(*netproto.Request) { r.dropped++ }
func (r *requests) Control(out []byte)        { r.control = append(r.control, bytes.Clone(out)) }
func (r *requests) feed(b []byte) (left error) {
	_, left = netproto.NewReader(netproto.Limits{}, 0).Feed(b, r)
	return left
}
func parse(t *testing.T, b []byte) (r requests) { require.NoError(t, r.feed(b)); return r }

func TestRequests(t *testing.T) {
	at := netproto.GroupRank{Group: 1, TPRank: 2}
	chain := randomBytes("test", 8192*8)
	for name, test := range map[string]struct {
		request []byte
		tag     netproto.Tag
		hashLen int
		hashes  int
	}{
		"lookup":         {lookup(chain, 32), netproto.TagLookup, 32, 2048},
		"lookup, none":   {lookup(nil, 0), netproto.TagLookup, 0, 0},
		"explain":        {explain(chain, 1), netproto.TagExplain, 1, 65536},
		"explain, none":  {explain(nil, 0), netproto.TagExplain, 0, 0},
		"store":          {store(at, chain[:160], 32), netproto.TagStore, 32, 5},
		"chunks":         {storeChunks(7, chain[:8], chain[8:80], 8), netproto.TagStore, 8, 9},
		"first chunks":   {storeChunks(0, nil, chain[:80], 8), netproto.TagStore, 8, 10},
		"anchors":        {anchors(chain, 8, netproto.MaxAnchors, false), netproto.TagAnchors, 8, netproto.MaxAnchors},
		"anchors, known": {anchors(chain, 8, 16, true), netproto.TagAnchors, 8, 16},
		"stat":           {request(netproto.TagStat), netproto.TagStat, 0, 0},
		"reset":          {request(netproto.TagReset), netproto.TagReset, 0, 0},
		"ping":           {request(netproto.TagPing, chain[:1000]), netproto.TagPing, 0, 0},
	} {
		blob, n := repeat(test.request, 3*len(test.request)+1)
		require.Equal(t, 3, n, name)
		r := parse(t, blob)
		require.Len(t, r.list, 3, name)
		for i, q := range r.list {
			require.NoError(t, q.Problem, name)
			assert.Equal(t, test.tag, q.Tag, name)
			assert.Equal(t, test.hashLen, q.HashLen, name)
			assert.Equal(t, test.hashes, q.NumHashes, name)
			if test.hashes > 0 {
				assert.Equal(t, test.hashes*test.hashLen, r.hashes[i], name)
			}
		}
	}
}

func TestAnchors(t *testing.T) {
	const n, hashLen = 1 << 14, 8
	chain := randomBytes("test", n*hashLen)
	b := anchors(chain, hashLen, netproto.MaxAnchors, false)
	assert.InDelta(t, 49<<10, len(b), 1<<10)
	a := parse(t, b).list[0].Anchors
	assert.Equal(t, netproto.MaxAnchors, a.Len())
	assert.Equal(t, uint32(n-1), a.Number(a.Len()-1))
	assert.Equal(t, uint32(n), a.First)
	a = parse(t, anchors(chain, hashLen, 4, true)).list[0].Anchors
	digest, given := a.Digest(1)
	assert.True(t, given)
	assert.Equal(t, netproto.Digest(chain[n/4*hashLen:n/2*hashLen]), digest)
}

// What is no request is refused for the reason that it is meant for.
func TestOddBytes(t *testing.T) {
	r := parse(t, unknownRequest())
	assert.Equal(t, netproto.TagUnknown, r.list[0].Tag)
	var q requests
	require.ErrorIs(t, q.feed([]byte{2, 0x7f, 255, 255, 255, 255, 255, 255, 255}), netproto.ErrMessageLength)
	endless, _ := repeat([]byte{1, 0}, kib)
	require.ErrorIs(t, q.feed(endless), netproto.ErrFrameCount)
	require.ErrorIs(t, q.feed([]byte("GET")), netproto.ErrFirstByte)
	assert.Less(t, len(lookup(make([]byte, 32*mostHashes), 32)), netproto.DefaultMaxMessage)
}

func TestZMTP(t *testing.T) {
	r := parse(t, append(zmtpHello(), append(command("PING", "\x00\x00"), command("X", "")...)...))
	require.Len(t, r.control, 4) // greeting, READY, PONG, nothing
	assert.Equal(t, zmtpHelloReply, len(r.control[0])+len(r.control[1]))
	assert.Empty(t, r.control[3])
}

func TestReplyCounter(t *testing.T) {
	var stream []byte
	stream = netproto.AppendHit(stream, nil, 7)
	stream = netproto.AppendDone(stream, nil, netproto.AppendFrame(nil, make([]byte, 1000), false))
	stream = netproto.AppendFrame(stream, nil, false)
	stream = netproto.AppendFailed(stream, nil, "why")
	for piece := 1; piece <= len(stream); piece++ {
		var c replyCounter
		for from := 0; from < len(stream); from += piece {
			c.feed(stream[from:min(from+piece, len(stream))])
		}
		require.Equal(t, 4, c.messages, piece)
	}
}

func TestReadHit(t *testing.T) {
	in := bufio.NewReader(bytes.NewReader(netproto.AppendFailed(netproto.AppendHit(nil, nil, 512), nil, "why")))
	hit, single, err := readHit(in)
	require.NoError(t, err)
	assert.Equal(t, uint64(512), hit)
	assert.False(t, single)
	_, single, err = readHit(in)
	require.NoError(t, err)
	assert.True(t, single)
	_, _, err = readHit(in)
	require.ErrorIs(t, err, io.EOF)
}

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 100 {
		values = append(values, time.Duration(i+1))
	}
	assert.Equal(t, time.Duration(50), percentile(values, 50))
	assert.Equal(t, time.Duration(99), percentile(values, 99))
	assert.Equal(t, time.Duration(100), percentile(values, 100))
	assert.Equal(t, time.Duration(1), percentile(values[:1], 99))
	assert.Equal(t, time.Duration(2), median([]time.Duration{3, 1, 2}))
	assert.Equal(t, time.Duration(1), median([]time.Duration{2, 1}))
}

// Lookups outside of the attack count as answers, not as waits.
func TestSummarize(t *testing.T) {
	begin := time.Now()
	at := func(d, wait time.Duration, r result) sample { return sample{begin.Add(d), wait, r} }
	s := summarize([]sample{at(-1, 1000, right), at(0, 5, right), at(1, 9, wrong), at(2, 7, refused), at(3, 1000, unheard)}, begin, begin.Add(2))
	assert.Equal(t, stats{P50: 7, P99: 9, Longest: 9, Asked: 5, Results: [numKinds]int{2, 1, 1, 1}}, s)
	assert.Zero(t, summarize(nil, begin, begin).Longest)
}

func TestChanges(t *testing.T) {
	before := api.Stat{Entries: 9, Closed: map[string]int64{"peer": 1, "idle": 2}}
	after := api.Stat{Entries: 4, Failed: 3, Closed: map[string]int64{"peer": 1, "idle": 5}}
	assert.Equal(t, map[string]int64{"entries": -5, "failed": 3, "closed.idle": 3}, changes(before, after))
}

func TestStatusField(t *testing.T) {
	const status = "Name:\thitline\nVmHWM:\t  20480 kB\nVmRSS:\t  10240 kB\n"
	assert.Equal(t, 20, statusField(status, "VmHWM:"))
	assert.Equal(t, 10, statusField(status, "VmRSS:"))
	assert.Zero(t, statusField(status, "VmPeak:"))
}

func TestSelectAttacks(t *testing.T) {
	names := func(list string) string {
		rows, bad := selectAttacks(list)
		require.Empty(t, bad)
		var all []string
		for _, row := range rows {
			all = append(all, row.name)
		}
		return strings.Join(all, " ")
	}
	assert.Equal(t, "stat-8 stat-64 ping", names("ping,stat"))
	assert.Equal(t, "reset-8 explain-short-8", names("reset-8 explain-s*-8"))
	_, bad := selectAttacks("stat,nothing")
	assert.Equal(t, "nothing", bad)
	seen := map[string]bool{}
	for _, row := range attacks() {
		assert.False(t, seen[row.name], row.name)
		assert.NotEmpty(t, row.help, row.name)
		assert.NotNil(t, row.prepare, row.name)
		seen[row.name] = true
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"--seconds", "0.5", "--long"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, time.Second/2, o.duration)
	assert.Equal(t, 90*time.Second, o.hold)
	for _, args := range [][]string{{"x"}, {"--rounds", "0"}, {"--seconds", "0"}, {"--nothing"}} {
		_, err := parseFlags(args, io.Discard)
		require.ErrorIs(t, err, errUsage)
	}
}

// The innocent sees wrong answers, refusals, and answers that do not come.
func TestInnocent(t *testing.T) {
	for name, test := range map[string]struct {
		reply []byte
		want  expectation
		kind  result
	}{
		"too high": {netproto.AppendHit(nil, nil, 2048), atMost, wrong},
		"lower":    {netproto.AppendHit(nil, nil, 0), atMost, right},
		"low":      {netproto.AppendHit(nil, nil, 0), exactly, wrong},
		"not zero": {netproto.AppendHit(nil, nil, 16), zero, wrong},
		"zero":     {netproto.AppendHit(nil, nil, 0), zero, right},
		"refused":  {netproto.AppendFailed(nil, nil, "why"), exactly, refused},
		"closed":   {nil, exactly, unheard},
	} {
		addr, err := listenFake(func(conn net.Conn, _ string) { answerAll(conn, test.reply) })
		require.NoError(t, err)
		c, err := newInnocent(addr, nil, test.want)
		require.NoError(t, err)
		c.start()
		time.Sleep(100 * time.Millisecond)
		samples := c.stop()
		assert.NotEmpty(t, samples, name)
		for _, s := range samples {
			assert.Equal(t, test.kind, s.result, name)
		}
	}
}

// answerAll answers every request with reply, or closes the connection if there is none.
func answerAll(conn net.Conn, reply []byte) {
	reader := netproto.NewReader(netproto.Limits{}, 0)
	buf := make([]byte, 64*kib)
	for answered := 0; len(reply) > 0; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		var r requests
		if _, err := reader.Feed(buf[:n], &r); err != nil {
			return
		}
		for range r.list {
			answered++
			_, _ = conn.Write(reply)
		}
	}
}
