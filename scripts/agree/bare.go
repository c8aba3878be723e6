//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/bench/measure"
)

// bareRows returns the rows of --bare. Latency is what counts, so there is one connection.
func bareRows() []loadRow { return []loadRow{{1, 64}, {1, 512}, {1, 8192}} }

// measureBare runs the generator at hitline and at the bare server in turn. Both run all the time,
// on the same cores: the one that is not asked sleeps.
func measureBare(ctx context.Context, b *bed, rows []loadRow) (report, error) {
	r := &loadReport{Setup: measure.NewSetup(b.o.seed), Pairs: b.o.pairs, Seconds: b.o.seconds, Tolerance: b.o.tolerance, SharedCore: b.shared}
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("agree: %w", err)
	}
	bare, err := startReady(ctx, exec.Command(self, "--serve-bare"), b.servers)
	if err != nil {
		return r, err
	}
	defer bare.kill()
	for _, row := range rows {
		var pairs [][2]result
		for i := range b.o.pairs {
			p, err := b.measureBarePair(ctx, row, i, bare.addr)
			if err != nil {
				return r, fmt.Errorf("%s: %w", row.name(), err)
			}
			pairs = append(pairs, p)
		}
		c := comparison{Connections: row.connections, Hashes: row.hashes, Figure: "p50_us", Of: "hitline", Beside: "bare gnet server"}
		r.Comparisons = append(r.Comparisons, newComparison(c, pairs, func(p [2]result) [2]float64 { return [2]float64{p[0].P50us, p[1].P50us} }))
	}
	return r, nil
}

// measureBarePair makes one run at hitline and one at the bare server, which begins in every second pair.
func (b *bed) measureBarePair(ctx context.Context, row loadRow, i int, bareAddr string) (p [2]result, err error) {
	l := load{connections: row.connections, hashes: row.hashes, reset: true}
	order := []int{0, 1}
	if i%2 == 1 {
		slices.Reverse(order)
	}
	for _, server := range order {
		l.addr = [2]string{b.server.addr, bareAddr}[server]
		if p[server], err = b.runGenerator(ctx, l); err != nil {
			return p, err
		}
	}
	b.progress("%s, pair %d of %d: hitline p50 %.1f µs, bare gnet server %.1f µs", row.name(), i+1, b.o.pairs, p[0].P50us, p[1].P50us)
	return p, nil
}

// serveBare serves the requests of the generator with gnet and nothing else: a lookup is the
// comparison of its bytes, as they arrive, with the stored chain that begins with its first 8. It
// announces its address as hitline does, and runs until it is killed.
func serveBare(log io.Writer) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("agree: %w", err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		return fmt.Errorf("agree: %w", err)
	}
	s := &bareServer{log: log, addr: "tcp://" + addr, chains: map[uint64][]byte{}}
	return gnet.Run(s, s.addr, gnet.WithNumEventLoop(1))
}

// bareServer has one event loop.
type bareServer struct {
	gnet.BuiltinEventEngine
	log    io.Writer
	addr   string
	chains map[uint64][]byte // by their first 8 bytes
}

// OnBoot implements gnet.EventHandler. Connections wait from here on.
func (s *bareServer) OnBoot(gnet.Engine) gnet.Action {
	fmt.Fprintf(s.log, "{\"msg\":\"ready\",\"listen\":[%q]}\n", s.addr)
	return gnet.None
}

// OnOpen implements gnet.EventHandler.
func (s *bareServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&bareConn{})
	return nil, gnet.None
}

// bareConn is the request that a connection is receiving.
type bareConn struct {
	head   []byte // bytes that arrived and do not yet tell the request
	req    bareRequest
	active bool
	chain  []byte // stored, or being stored
	at     int    // bytes of the blob so far
	differ bool
}

// OnTraffic implements gnet.EventHandler.
func (s *bareServer) OnTraffic(c gnet.Conn) gnet.Action {
	p, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	n := len(p)
	if !s.serve(c, c.Context().(*bareConn), p) {
		return gnet.Close
	}
	_, _ = c.Discard(n)
	return gnet.None
}

// serve serves bytes. It returns false if they are no request.
func (s *bareServer) serve(c io.Writer, conn *bareConn, p []byte) bool {
	for len(p) > 0 {
		if !conn.active {
			if len(conn.head) > 0 {
				p, conn.head = append(conn.head, p...), nil
			}
			n, whole, ok := conn.req.parse(p)
			if !ok {
				return false
			}
			if !whole {
				conn.head = append([]byte(nil), p...)
				return true
			}
			s.begin(conn, p[n:])
			p = p[n:]
		}
		n := min(conn.req.blob-conn.at, len(p))
		switch conn.req.tag {
		case "lookup":
			conn.differ = conn.differ || !bytes.Equal(conn.chain[conn.at:conn.at+n], p[:n])
		case "store":
			copy(conn.chain[conn.at:], p[:n])
		}
		p = p[n:]
		if conn.at += n; conn.at == conn.req.blob {
			if _, err := c.Write(s.end(conn)); err != nil {
				return false
			}
		}
	}
	return true
}

// begin begins a request, whose blob begins with these bytes.
func (s *bareServer) begin(conn *bareConn, blob []byte) {
	conn.active, conn.at, conn.differ = true, 0, false
	switch conn.req.tag {
	case "lookup":
		conn.chain = s.chains[binary.BigEndian.Uint64(blob)]
		if len(conn.chain) != conn.req.blob {
			conn.chain, conn.differ = make([]byte, conn.req.blob), true
		}
	case "store":
		conn.chain = make([]byte, conn.req.blob)
	}
}

// end ends a request and returns its answer.
func (s *bareServer) end(conn *bareConn) []byte {
	conn.active = false
	switch conn.req.tag {
	case "lookup":
		answer := [6]byte{0, 4}
		if !conn.differ {
			copy(answer[2:], conn.req.tokens[:])
		}
		return answer[:]
	case "ping":
		return append([]byte{1, 1, 1, 0, byte(len(conn.req.echo))}, conn.req.echo...)
	case "store":
		s.chains[binary.BigEndian.Uint64(conn.chain)] = conn.chain
	case "reset":
		clear(s.chains)
	}
	return []byte{0, 1, 1}
}

// bareRequest is a request up to its blob.
type bareRequest struct {
	tag    string
	tokens [4]byte
	echo   []byte
	blob   int // bytes; 0 for none
}

// bareFrames is how many frames a request has in front of its blob.
var bareFrames = map[string]int{"lookup": 3, "store": 3, "ping": 2, "reset": 1}

// parse parses the frames of a request up to its blob, and returns how many bytes they are. whole is
// false if there are too few: a blob counts from its first 8 bytes on. ok is false if it is none of
// the generator's.
func (r *bareRequest) parse(p []byte) (n int, whole, ok bool) {
	*r = bareRequest{}
	frames := 1
	for i := 0; i < frames; i++ {
		size, length, whole := parseFrame(p[n:])
		if !whole || len(p)-n-size < length {
			return 0, false, true
		}
		body := p[n+size : n+size+length]
		if n += size + length; i == 0 {
			r.tag = string(body)
			if frames, ok = bareFrames[r.tag]; !ok {
				return 0, false, false
			}
		} else if r.tag == "ping" {
			r.echo = bytes.Clone(body)
		} else if r.tag == "lookup" && i == 1 {
			copy(r.tokens[:], body)
		}
	}
	if r.tag == "lookup" || r.tag == "store" {
		size, length, whole := parseFrame(p[n:])
		if n += size; !whole || len(p)-n < 8 {
			return 0, false, true
		}
		r.blob = length
	}
	return n, true, true
}

// parseFrame returns the size of a frame's header and the length of its body.
func parseFrame(p []byte) (size, length int, whole bool) {
	const long = 2
	switch {
	case len(p) >= 2 && p[0]&long == 0:
		return 2, int(p[1]), true
	case len(p) >= 9 && p[0]&long != 0:
		return 9, int(binary.BigEndian.Uint64(p[1:])), true
	}
	return 0, 0, false
}
