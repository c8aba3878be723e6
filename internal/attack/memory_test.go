//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

var memoryConns = flag.String("conns", "100,1000,4000", "connections of a flood")
var memoryBound = flag.Int("mib", 24, "limits.max_memory")

// floodRequests returns the requests of a kind with which a flood makes the server hold most, nil if there are none.
func floodRequests(tag netproto.Tag) [][]byte {
	const hashLen = 32
	hashes := randomBytes("flood", 2000*hashLen)
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
	switch tag {
	case netproto.TagUnknown:
		return [][]byte{netproto.AppendFrame(nil, []byte("x"), false)}
	case netproto.TagLookup:
		return [][]byte{lookup(hashes[:hashLen], hashLen), lookup(hashes, hashLen)}
	case netproto.TagLookupFrom, netproto.TagExplain, netproto.TagPlan:
		return [][]byte{from(1), from(2000)}
	case netproto.TagRenew:
		return [][]byte{request(tag, []byte{0, hashLen}, hashes[:hashLen]), request(tag, []byte{0, hashLen}, hashes)}
	case netproto.TagLoadMask:
		return [][]byte{request(tag, u32(1<<20, 1<<16))}
	case netproto.TagStoreMask:
		return [][]byte{request(tag, u32(1<<18, 0, 0xffffffff)), request(tag, u32(64, 0, 0xffffffff))}
	case netproto.TagLookupMask:
		return [][]byte{request(tag, u32(1<<18)), request(tag, u32(64))}
	case netproto.TagStore, netproto.TagEvict:
		return [][]byte{keys(1), keys(2000)}
	case netproto.TagStorePrompt:
		return [][]byte{
			request(tag, u32(16, 0, 0xffffffff, 0), nil, nil, []byte{0, hashLen}, hashes[:hashLen]),
			request(tag, u32(32000, 0, 0xffffffff, 0), nil, nil, []byte{0, hashLen}, hashes),
		}
	case netproto.TagReset:
		return [][]byte{request(tag)}
	case netproto.TagResetRank:
		return [][]byte{request(tag, make([]byte, 6))}
	case netproto.TagPing:
		return [][]byte{request(tag), request(tag, make([]byte, 60000))}
	case netproto.TagStat:
		return [][]byte{request(tag)}
	case netproto.TagPool:
		return [][]byte{request(tag, []byte(`{"name":""}`)), request(tag, bytes.Repeat([]byte(" "), 60000))}
	case netproto.TagAuth:
		return [][]byte{request(tag, []byte("wrong-token-0123456789"))}
	}
	return nil
}

// flood writes blobs to connections as far as they are taken, and reads nothing.
type flood struct {
	conns []*floodConn
	sent  atomic.Int64
	lost  atomic.Int64
}

type floodConn struct {
	net.Conn
	raw interface {
		Write(func(uintptr) bool) error
	}
	blob, rest []byte
	lost       bool
	most       int
}

func openFlood(addr string, n int, blobs [][]byte) (*flood, error) {
	f := &flood{conns: make([]*floodConn, n)}
	err := inParallel(n, func(i int) error {
		conn, err := dial(addr)
		if err != nil {
			return err
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		f.conns[i] = &floodConn{Conn: conn, raw: raw, blob: blobs[i%len(blobs)], rest: blobs[i%len(blobs)]}
		return nil
	})
	return f, err
}

// run floods until end.
func (f *flood) run(end time.Time) {
	var running sync.WaitGroup
	for part := range slices.Chunk(f.conns, (len(f.conns)+3)/4) {
		running.Go(func() {
			for begin := time.Now(); begin.Before(end); begin = time.Now() {
				for _, c := range part {
					if n := c.send(); n > 0 {
						f.sent.Add(int64(n))
					} else if n < 0 {
						f.lost.Add(1)
					}
				}
				time.Sleep(time.Until(begin.Add(100 * time.Millisecond)))
			}
		})
	}
	running.Wait()
}

// send writes what the kernel takes of the next requests. It returns -1 if the connection was lost.
func (c *floodConn) send() (n int) {
	if c.lost {
		return 0
	}
	if len(c.rest) == 0 {
		c.rest = c.blob
		c.most = max(8*kib, len(c.blob)/8)
	}
	most := len(c.rest)
	if c.most > 0 {
		most = min(most, c.most)
	}
	var err error
	if failed := c.raw.Write(func(fd uintptr) bool { n, err = unix.Write(int(fd), c.rest[:most]); return true }); failed != nil {
		err = failed
	}
	switch {
	case err == unix.EAGAIN:
		return 0
	case err != nil:
		c.lost = true
		return -1
	}
	c.rest = c.rest[n:]
	return n
}

func (f *flood) close() {
	for _, c := range f.conns {
		if c != nil {
			_ = c.Conn.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
}

var memoryGauge = regexp.MustCompile(`(?m)^hitline_memory_bytes (\S+)`)

// pollMemory returns the largest value of hitline_memory_bytes until stop is closed.
func pollMemory(addr string, stop chan struct{}) (most float64) {
	client := http.Client{Timeout: 5 * time.Second}
	for {
		if resp, err := client.Get("http://" + addr + "/metrics"); err == nil {
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if m := memoryGauge.FindSubmatch(text); m != nil {
				v, _ := strconv.ParseFloat(string(m[1]), 64)
				most = max(most, v)
			}
		}
		select {
		case <-stop:
			return most
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type askCounts struct {
	right, refused, lost int
	longest              time.Duration
	why                  string
}

// askOneByOne asks the questions on one connection, each after the answer to the one before, until stop is closed.
func askOneByOne(c *innocent, stop chan struct{}) (counts askCounts) {
	conn := c.conns[0]
	in := bufio.NewReader(conn)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return counts
		case <-time.After(5 * time.Millisecond):
		}
		q := c.questions[i%len(c.questions)]
		begin := time.Now()
		_ = conn.SetDeadline(begin.Add(lastAnswers))
		_, _ = conn.Write(q.request)
		frames, err := readMessage(in)
		if err != nil {
			counts.lost++
			counts.why = err.Error()
			return counts
		}
		counts.longest = max(counts.longest, time.Since(begin))
		if len(frames[0]) == 1 {
			counts.refused++
			counts.why = string(frames[1])
		} else {
			counts.right++
		}
	}
}

const memoryGroups = 16

func TestMemory(t *testing.T) {
	pool := "{kind: full_attention, block_size: 16}" + strings.Repeat(", {kind: sliding_window, block_size: 16, sliding_window: 1024}", memoryGroups-1)
	for _, stored := range []bool{false, true} {
		for tag := range netproto.Tag(netproto.NumTags) {
			for _, text := range strings.Split(*memoryConns, ",") {
				n, _ := strconv.Atoi(text)
				where := "memory"
				if stored {
					where = "store"
				}
				t.Run(fmt.Sprintf("%s-%s-%d", where, tag, n), func(t *testing.T) {
					requests := floodRequests(tag)
					if requests == nil {
						t.Fatal("a new request: say which of them makes the server hold most")
					}
					var blobs [][]byte
					for _, r := range requests {
						blob, _ := repeat(r, 64*kib)
						blobs = append(blobs, blob)
					}
					spec := serverSpec{metrics: true, fullStore: stored, env: []string{
						"HITLINE_POOL={model_name: m, groups: [" + pool + "]}",
						fmt.Sprintf("HITLINE_LIMITS_MAX_MEMORY=%dMiB", *memoryBound),
						"HITLINE_BACKEND_MEMORY_MAX_BYTES=8MiB", "HITLINE_PPROF=true",
					}}
					if stored {
						spec.env = append(spec.env[:2], "HITLINE_PPROF=true")
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
					base, _ := server.memory()
					f, err := openFlood(server.addr, n, blobs)
					if err != nil {
						t.Fatal(err)
					}
					defer f.close()
					before, err := server.stat()
					if err != nil {
						t.Fatal(err)
					}
					stop, gauge := make(chan struct{}), make(chan float64, 1)
					go func() { gauge <- pollMemory(server.metrics, stop) }()
					idle, _ := server.memory()
					for _, c := range asker.conns {
						fmt.Println("INNOCENT", c.LocalAddr())
					}
					go func() {
						time.Sleep(duration() * 2 / 3)
						if resp, err := http.Get("http://" + server.metrics + "/debug/pprof/heap?debug=1"); err == nil {
							text, _ := io.ReadAll(resp.Body)
							resp.Body.Close()
							_ = os.WriteFile("/tmp/mem/heap.txt", text, 0o600)
						}
						if resp, err := http.Get("http://" + server.metrics + "/debug/pprof/profile?seconds=2"); err == nil {
							text, _ := io.ReadAll(resp.Body)
							resp.Body.Close()
							_ = os.WriteFile("/tmp/mem/cpu.pb", text, 0o600)
						}
					}()
					asked := make(chan askCounts, 1)
					go func() { asked <- askOneByOne(asker, stop) }()
					f.run(time.Now().Add(duration()))
					_, peak := server.memory()
					close(stop)
					results := <-asked
					most := int(<-gauge)
					bound := *memoryBound*3/2 + 64
					verdict := "ok"
					if peak > bound {
						verdict = "OVER"
					}
					fmt.Printf("%-28s base %d idle %d peak %4d of %d %s account %.2f sent %d MiB lost %d innocent %+v\n", t.Name()[len("TestMemory/"):], base, idle, peak, bound, verdict,
						float64(most)/float64(*memoryBound<<20), f.sent.Load()>>20, f.lost.Load(), results)
					f.close()
					for range 4 {
						time.Sleep(time.Second)
						after, _ := server.stat()
						fmt.Println("   ", after["memory"], after["connections"], after["in_flight"], after["accept_errors"])
					}
					if after, err := server.stat(); err == nil {
						fmt.Println("   ", changes(before, after), after["memory"], after["busy"])
					} else {
						fmt.Println("   ", err)
					}
					if err := server.died(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

var _ = coordinator.GroupRank{}
