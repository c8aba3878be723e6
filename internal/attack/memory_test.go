//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hitline/hitline/netproto"
)

const (
	maxMemory    = 24 // MiB, of limits.max_memory: the least that there may be
	memoryGroups = 16 // of the pool: masks are long
)

// What a server may take under a flood, and what the innocent may be refused.
const (
	maxResident = maxMemory*3/2 + 64 // MiB
	maxGauge    = 1.1                // hitline_memory_bytes by limits.max_memory
	maxRefused  = 0.01               // over a store, of the innocent's lookups; none over memory
	fewRefused  = 5                  // that are right, too: on a busy machine there are few lookups
)

// TestMemory floods a server with each kind of request. No reply is read, and connections that the server closes are
// replaced. Meanwhile the innocent asks one lookup after the other.
func TestMemory(t *testing.T) {
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "row\tMiB\tpeak\tgauge\tclosed\tright\trefused\tlongest ms\tresult")
	for _, over := range []string{"memory", "store"} {
		for tag := range netproto.Tag(netproto.NumTags) {
			for _, n := range []int{100, 1000, manyConns} {
				t.Run(fmt.Sprintf("held-%s-%s-%d", over, tag, n), func(t *testing.T) {
					requests := floodRequests(tag)
					switch {
					case requests == nil:
						t.Fatal("a request that floodRequests does not know")
					case uint64(n)+500 > maxFiles:
						t.Skipf("needs %d open files, the hard limit is %d (ulimit -Hn)", n+500, maxFiles)
					}
					fmt.Fprint(rows, runFlood(t, over == "store", n, requests))
				})
			}
		}
	}
	if err := rows.Flush(); err != nil {
		t.Error(err)
	}
	t.Logf("memory of a server with max_memory %d MiB:\n%s", maxMemory, &table)
}

// runFlood floods a server from n connections. It returns a line of the table.
func runFlood(t *testing.T, stored bool, n int, requests [][]byte) string {
	groups := "{kind: full_attention, block_size: 16}" +
		strings.Repeat(", {kind: sliding_window, block_size: 16, sliding_window: 1024}", memoryGroups-1)
	spec := serverSpec{metrics: true, fullStore: stored, env: []string{
		"HITLINE_POOL={model_name: m, groups: [" + groups + "]}", fmt.Sprintf("HITLINE_LIMITS_MAX_MEMORY=%dMiB", maxMemory),
	}}
	if !stored {
		spec.env = append(spec.env, "HITLINE_BACKEND_MEMORY_MAX_BYTES=8MiB")
	}
	server, err := startServer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop()
	asker, err := newInnocent(server.addr, groupRanks(memoryGroups), atMost, stored)
	if err != nil {
		t.Fatal(err)
	}
	defer asker.close()
	if err := asker.prepare(); err != nil {
		t.Fatal(err)
	}
	start, _ := server.memory()
	stop, gauge, asked := make(chan struct{}), make(chan float64, 1), make(chan askCounts, 1)
	go func() { gauge <- pollMemory(server.metrics, stop) }()
	go func() { asked <- askOneByOne(asker, stop) }()
	closed, err := flood(server.addr, n, requests)
	_, peak := server.memory()
	close(stop)
	counts, held := <-asked, <-gauge/(maxMemory*mib)
	if err == nil {
		err = server.died()
	}
	if err != nil {
		t.Error(err)
	}
	if peak > maxResident && !*overTLS { // whose buffers are not part of limits.max_memory
		t.Errorf("the server takes %d MiB, at most %d is right", peak, maxResident)
	}
	if held > maxGauge || held == 0 {
		t.Errorf("hitline_memory_bytes is %.2f times limits.max_memory, at most %.2f is right", held, maxGauge)
	}
	if err := counts.check(stored); err != nil {
		t.Error(err)
	}
	result := "ok"
	if t.Failed() {
		result = "FAILED"
	}
	return fmt.Sprintf("%s\t%d\t%d\t%.2f\t%d\t%d\t%d\t%s\t%s\n", strings.TrimPrefix(t.Name(), "TestMemory/"), start, peak, held,
		closed, counts.right, counts.refused, ms(counts.longest), result)
}

// flood writes 64 KiB of requests to each of n connections, of one kind to each, and then 8 KiB ten times a second. It
// returns how many connections the server has closed.
func flood(addr string, n int, requests [][]byte) (closed int64, err error) {
	a := &attacker{addr: addr}
	conns, err := a.open(n)
	end := time.Now().Add(duration())
	a.forDuration(n, func(i int) bool {
		if conns[i] == nil {
			return false
		}
		blob, _ := repeat(requests[i%len(requests)], 64*kib)
		_ = conns[i].SetWriteDeadline(end) // it may be lost
		a.floodConn(conns[i], blob)
		conns[i].Close()
		if time.Now().After(end) {
			return false
		}
		conn, err := dial(addr)
		if err != nil { // the system's queue of connections is full
			time.Sleep(10 * time.Millisecond)
			return true
		}
		a.opened.Add(1)
		conns[i] = conn
		return true
	})
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
	return a.opened.Load() - int64(n), err
}

func (a *attacker) floodConn(conn net.Conn, blob []byte) {
	for open := a.write(conn, blob, 0); open; {
		for piece := range slices.Chunk(blob, 8*kib) {
			time.Sleep(100 * time.Millisecond)
			if open = a.write(conn, piece, 0); !open {
				break
			}
		}
	}
}

// floodRequests returns the requests of a kind that make the server hold most, small and large ones; nil if it knows none.
func floodRequests(tag netproto.Tag) [][]byte {
	const hashLen, many = 32, 2000
	hashes := randomBytes("flood", many*hashLen)
	u32 := func(numbers ...uint32) (b []byte) {
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return b
	}
	from := func(n int) []byte {
		return append(netproto.AppendLookupFrom(nil, nil, tag, uint32(n*blockTokens), 0, hashLen, n*hashLen), hashes[:n*hashLen]...)
	}
	keys := func(n int) []byte {
		return append(netproto.AppendKeys(nil, nil, tag, netproto.WireRank{}, hashLen, n*hashLen), hashes[:n*hashLen]...)
	}
	storePrompt := func(n int) []byte {
		return request(tag, u32(uint32(n*blockTokens), 0, netproto.PromptTokensUnknown, 0), nil, nil, []byte{0, hashLen}, hashes[:n*hashLen])
	}
	named := func(plain []byte) [][]byte { // with long ids, too
		var envelope []byte
		for range netproto.MaxEnvelopeFrames {
			envelope = netproto.AppendFrame(envelope, make([]byte, netproto.MaxAddress), true)
		}
		return [][]byte{plain, slices.Concat(netproto.AppendFrame(envelope, nil, true), plain)}
	}
	switch tag {
	case netproto.TagUnknown:
		return named(netproto.AppendFrame(nil, []byte("x"), false))
	case netproto.TagLookup:
		return [][]byte{lookup(hashes[:hashLen], hashLen), lookup(hashes, hashLen)}
	case netproto.TagLookupFrom, netproto.TagExplain, netproto.TagPlan:
		return [][]byte{from(1), from(many)}
	case netproto.TagRenew:
		return [][]byte{request(tag, []byte{0, hashLen}, hashes[:hashLen]), request(tag, []byte{0, hashLen}, hashes)}
	case netproto.TagLoadMask:
		return named(request(tag, u32(1<<20, 1<<16)))
	case netproto.TagStoreMask:
		return [][]byte{request(tag, u32(1<<18, 0, netproto.PromptTokensUnknown)), request(tag, u32(64, 0, netproto.PromptTokensUnknown))}
	case netproto.TagLookupMask:
		return [][]byte{request(tag, u32(1<<18)), request(tag, u32(64))}
	case netproto.TagStore, netproto.TagEvict:
		return [][]byte{keys(1), keys(many)}
	case netproto.TagStorePrompt:
		return [][]byte{storePrompt(1), storePrompt(many)}
	case netproto.TagReset:
		return named(request(tag))
	case netproto.TagResetRank:
		return named(request(tag, make([]byte, 6)))
	case netproto.TagPing:
		return append(named(request(tag)), request(tag, make([]byte, 60000)))
	case netproto.TagStat:
		return named(request(tag))
	case netproto.TagPool:
		return [][]byte{request(tag, []byte(`{"name":""}`)), request(tag, bytes.Repeat([]byte(" "), 60000))}
	case netproto.TagAuth:
		return named(request(tag, []byte("wrong-token-0123456789")))
	}
	return nil
}

var memoryGauge = regexp.MustCompile(`(?m)^hitline_memory_bytes (\S+)`)

// pollMemory returns the largest value of hitline_memory_bytes until stop is closed; 0 if it never was read.
func pollMemory(addr string, stop chan struct{}) (most float64) {
	client := http.Client{Timeout: lastAnswers}
	for {
		if resp, err := client.Get("http://" + addr + "/metrics"); err == nil {
			text, _ := io.ReadAll(resp.Body) // a part of it has no match
			resp.Body.Close()
			if m := memoryGauge.FindSubmatch(text); m != nil {
				held, _ := strconv.ParseFloat(string(m[1]), 64)
				most = max(most, held)
			}
		}
		select {
		case <-stop:
			return most
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// askCounts are the answers to an innocent that asks one lookup after the other.
type askCounts struct {
	right, refused int
	longest        time.Duration
	reason         string // of the last refusal
	err            error  // a wrong answer, or none
}

// askOneByOne asks on one connection, each lookup after the answer to the one before, until stop is closed.
func askOneByOne(c *innocent, stop chan struct{}) (counts askCounts) {
	conn := c.conns[0]
	in := bufio.NewReader(conn)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return counts
		case <-time.After(5 * time.Millisecond):
		}
		q, begin := c.questions[i%len(c.questions)], time.Now()
		_ = conn.SetDeadline(begin.Add(lastAnswers)) // it may be lost
		_, _ = conn.Write(q.request)                 // the reader sees that it is lost
		frames, err := readMessage(in)
		counts.longest = max(counts.longest, time.Since(begin))
		switch {
		case err != nil:
			counts.err = fmt.Errorf("attack: the innocent has no answer: %w", err)
			return counts
		case len(frames[0]) == 1:
			counts.refused++
			counts.reason = fmt.Sprintf("%q", frames[1:])
		case netproto.ParseInt(frames[0]) > q.hit:
			counts.err = fmt.Errorf("attack: the innocent has a hit of %d tokens, at most %d is right", netproto.ParseInt(frames[0]), q.hit)
			return counts
		default:
			counts.right++
		}
	}
}

// check returns what is wrong with the answers.
func (a *askCounts) check(stored bool) error {
	limit := 0
	if stored {
		limit = max(fewRefused, int(maxRefused*float64(a.right+a.refused)))
	}
	switch {
	case a.err != nil:
		return a.err
	case a.right == 0:
		return fmt.Errorf("attack: the innocent has no right answer")
	case a.refused > limit:
		return fmt.Errorf("attack: the innocent is refused %d of %d lookups, at most %d is right: %s",
			a.refused, a.right+a.refused, limit, a.reason)
	}
	return nil
}
