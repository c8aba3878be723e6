//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/panjf2000/gnet/v2"
)

// bareServer serves the requests of the generator with gnet and nothing else: a lookup is the
// comparison of its bytes, as they arrive, with the stored chain that begins with its first 8. It
// has one event loop.
type bareServer struct {
	gnet.BuiltinEventEngine
	chains map[uint64][]byte // by their first 8 bytes
}

// serveBare serves until the process is killed.
func serveBare(addr string) error {
	return gnet.Run(&bareServer{chains: map[uint64][]byte{}}, "tcp://"+addr, gnet.WithNumEventLoop(1))
}

// OnOpen implements gnet.EventHandler.
func (s *bareServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&bareConn{})
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (s *bareServer) OnTraffic(c gnet.Conn) gnet.Action {
	p, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	used, ok := s.serve(c, c.Context().(*bareConn), p)
	if !ok {
		return gnet.Close
	}
	_, _ = c.Discard(used) // the rest comes again with what follows it
	return gnet.None
}

// bareConn is the request that a connection is receiving.
type bareConn struct {
	kind   byte // first byte of its name: l, s or r; 0 between requests
	tokens [4]byte
	size   int    // bytes of the blob
	at     int    // of them compared or stored
	chain  []byte // stored, or being stored
	differ bool
}

// serve serves bytes and returns how many. It returns false if they are no request.
func (s *bareServer) serve(c io.Writer, conn *bareConn, p []byte) (used int, ok bool) {
	for used < len(p) {
		if conn.kind == 0 {
			n, ok := s.begin(conn, p[used:])
			if n == 0 || !ok {
				return used, ok
			}
			used += n
		}
		piece := p[used:min(len(p), used+conn.size-conn.at)]
		switch conn.kind {
		case 'l':
			conn.differ = conn.differ || !bytes.Equal(conn.chain[conn.at:conn.at+len(piece)], piece)
		case 's':
			copy(conn.chain[conn.at:], piece)
		}
		used += len(piece)
		if conn.at += len(piece); conn.at == conn.size {
			if _, err := c.Write(s.end(conn)); err != nil {
				return used, false
			}
		}
	}
	return used, true
}

// bareHeads are the bytes in front of the frame of the blob, by kind: frames as the generator sends
// them, which are short and of the same lengths in each request.
var bareHeads = map[byte]int{
	'l': len("..lookup") + 2 + 4 + 2 + 2,
	's': len("..store") + 2 + 6 + 2 + 2,
	'r': len("..reset"),
}

// begin begins a request and returns the bytes up to its blob, 0 if there are too few: a blob counts
// from its first 8 bytes on. It returns false if they are no request.
func (s *bareServer) begin(conn *bareConn, p []byte) (n int, ok bool) {
	const name, header, firstHash, long = 2, 9, 8, 2
	if len(p) <= name {
		return 0, true
	}
	kind := p[name]
	n, ok = bareHeads[kind]
	switch {
	case !ok:
		return 0, false
	case len(p) < n, kind != 'r' && len(p) < n+header+firstHash:
		return 0, true
	case kind == 'r':
		*conn = bareConn{kind: kind}
		return n, true
	}
	*conn = bareConn{kind: kind, size: int(p[n+1])}
	copy(conn.tokens[:], p[len("..lookup.."):])
	if p[n]&long == 0 {
		n += 2
	} else {
		conn.size = int(binary.BigEndian.Uint64(p[n+1:]))
		n += header
	}
	if kind == 'l' {
		conn.chain = s.chains[binary.BigEndian.Uint64(p[n:])]
	}
	if len(conn.chain) != conn.size {
		conn.chain, conn.differ = make([]byte, conn.size), true
	}
	return n, true
}

// end ends a request and returns its answer.
func (s *bareServer) end(conn *bareConn) []byte {
	kind := conn.kind
	conn.kind = 0
	switch kind {
	case 'l':
		answer := [6]byte{0, 4}
		if !conn.differ {
			copy(answer[2:], conn.tokens[:])
		}
		return answer[:]
	case 's':
		s.chains[binary.BigEndian.Uint64(conn.chain)] = conn.chain
	case 'r':
		clear(s.chains)
	}
	return []byte{0, 1, 1}
}
