// Package loadtest is a lookup server with faults, for tests of whoever checks servers. No promise:
// it is internal to this module, and its API may change in any release.
package loadtest

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hitline/hitline/netproto"
)

// Fault is what a server does wrong.
type Fault string

// The faults. Those of lookups show on every tenth, counted over all connections,
// unless noted.
const (
	None      Fault = ""
	OffByOne  Fault = "off by one"    // one block more or less
	NotWhole  Fault = "not whole"     // one token more than the right number of blocks
	Short     Fault = "short"         // a hit of three bytes
	Long      Fault = "long"          // a hit of five bytes
	Frames    Fault = "frames"        // a hit and another frame
	Done      Fault = "done"          // 01 in place of a hit
	Garbage   Fault = "garbage"       // bytes that are no frame
	Refuses   Fault = "refuses"       // 00
	Extra     Fault = "extra"         // a byte more than the answer
	Twice     Fault = "twice"         // the answer again
	Swaps     Fault = "swaps"         // two answers in the wrong order, whenever two wait
	Silent    Fault = "silent"        // no answer, from the tenth lookup on
	Late      Fault = "late"          // an answer after the Delay
	Closes    Fault = "closes"        // the connection ends
	Half      Fault = "half"          // the connection ends within an answer
	Forgets   Fault = "forgets"       // every store is answered, and every second not done
	Keeps     Fault = "keeps"         // every evict is answered, and but the first not done
	NoStore   Fault = "refuses store" // every tenth store is refused
	LastTwice Fault = "last twice"    // an answer comes again, just before a ping's
)

// Server is a server in this process with one full-attention group. The zero value
// of a field means none.
type Server struct {
	Fault  Fault
	Block  uint32        // tokens that one hash covers; 16 if zero
	Delay  time.Duration // before a late answer
	Honest int           // lookups before the first fault
	// OnSilence is called whenever a silent server gives no answer.
	OnSilence func()

	listener net.Listener
	waiting  sync.WaitGroup
	done     chan struct{}

	mu                      sync.Mutex
	stored                  map[string]bool
	conns                   map[net.Conn]bool
	lookups, stores, evicts int
}

// Start listens on loopback and serves until Close. It returns the address.
func (s *Server) Start() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if s.Block == 0 {
		s.Block = 16
	}
	s.listener, s.done = listener, make(chan struct{})
	s.stored, s.conns = map[string]bool{}, map[net.Conn]bool{}
	s.waiting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.waiting.Go(func() { s.serve(conn) })
		}
	})
	return "tcp://" + listener.Addr().String(), nil
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	close(s.done)
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.waiting.Wait()
}

// peer is one connection.
type peer struct {
	server *Server
	conn   net.Conn
	zmtp   bool
	in     []byte
	last   []byte // the last answer to a lookup
}

func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	s.conns[conn] = true
	s.mu.Unlock()
	p := &peer{server: s, conn: conn}
	chunk := make([]byte, 1<<16)
	for {
		n, err := conn.Read(chunk)
		if err != nil {
			return
		}
		p.in = append(p.in, chunk[:n]...)
		if p.handshake() && !p.answerAll() {
			return
		}
	}
}

// handshake tells whether requests may follow.
func (p *peer) handshake() bool {
	const greeting, ready = 64, 2
	switch {
	case p.zmtp || p.in[0] != 0xFF:
		return true
	case len(p.in) < greeting+ready || len(p.in) < greeting+ready+int(p.in[greeting+1]):
		return false
	}
	hello := append(bytes.Clone(p.in[:32]), make([]byte, 32)...)
	_, _ = p.conn.Write(append(hello, "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP"...))
	p.in = p.in[greeting+ready+int(p.in[greeting+1]):]
	p.zmtp = true
	return true
}

// answerAll answers the requests that have come whole; false ends the connection.
func (p *peer) answerAll() bool {
	var replies [][]byte
	for {
		frames, used, err := netproto.ParseMessage(p.in, netproto.Limits{}, nil)
		if err != nil {
			break
		}
		var envelope []byte
		if p.zmtp {
			envelope, frames = []byte{1, 0}, frames[1:]
		}
		reply, more := p.reply(envelope, frames)
		p.in = p.in[used:]
		replies = append(replies, reply)
		if !more {
			_, _ = p.conn.Write(bytes.Join(replies, nil))
			return false
		}
	}
	if p.server.Fault == Swaps && len(replies) > 1 {
		replies[0], replies[1] = replies[1], replies[0]
	}
	_, _ = p.conn.Write(bytes.Join(replies, nil))
	return true
}

// reply returns the answer, and false to end the connection after it.
func (p *peer) reply(envelope []byte, frames [][]byte) (answer []byte, more bool) {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(frames[0]) {
	case "lookup":
		return p.lookup(envelope, frames)
	case "store", "evict":
		return s.change(envelope, string(frames[0]), frames[3]), true
	case "stat", "pool":
		text := fmt.Appendf(nil, `{"pool":{"hash_block_size":%d}}`, s.Block)
		if string(frames[0]) == "stat" { // the pool has no name
			text = []byte(`{}`)
		}
		return netproto.AppendDone(nil, envelope, netproto.AppendFrame(nil, text, false)), true
	case "ping":
		var again []byte
		if s.Fault == LastTwice && p.last != nil {
			again = p.last
		}
		return netproto.AppendDone(bytes.Clone(again), envelope, netproto.AppendFrame(nil, frames[1], false)), true
	case "reset":
		clear(s.stored)
		return netproto.AppendDone(nil, envelope, nil), true
	}
	return netproto.AppendRefusal(nil, envelope, netproto.StatusFailed, fmt.Sprintf("unknown request %q", frames[0]), nil), true
}

// change stores or evicts.
func (s *Server) change(envelope []byte, what string, keys []byte) []byte {
	store := what == "store"
	var do bool
	if store {
		s.stores++
		if s.Fault == NoStore && s.stores%10 == 0 {
			return netproto.AppendRefusal(nil, envelope, netproto.StatusFailed, "no room", nil)
		}
		do = s.Fault != Forgets || s.stores%2 == 1
	} else {
		s.evicts++
		do = s.Fault != Keeps || s.evicts < 2
	}
	for at := 0; do && at+hashLen <= len(keys); at += hashLen {
		if store {
			s.stored[string(keys[at:at+hashLen])] = true
		} else {
			delete(s.stored, string(keys[at:at+hashLen]))
		}
	}
	return netproto.AppendDone(nil, envelope, nil)
}

const hashLen = 32 // bytes

// lookup answers a lookup, rightly or not.
func (p *peer) lookup(envelope []byte, frames [][]byte) (answer []byte, more bool) {
	s := p.server
	hit := uint32(0)
	for b := frames[3]; len(b) >= hashLen && s.stored[string(b[:hashLen])]; b = b[hashLen:] {
		hit += s.Block
	}
	hit = min(hit, uint32(netproto.ParseInt(frames[1])))
	right := netproto.AppendHit(nil, envelope, hit)
	p.last = right
	s.lookups++
	if s.lookups <= s.Honest || s.lookups%10 != 0 && s.Fault != Silent {
		return right, true
	}
	body := right[len(envelope)+2:]
	head := func(size int, more bool) []byte { return netproto.AppendFrameHeader(bytes.Clone(envelope), size, more) }
	switch s.Fault {
	case OffByOne:
		return netproto.AppendHit(nil, envelope, hit^s.Block), true
	case NotWhole:
		return netproto.AppendHit(nil, envelope, hit+1), true
	case Short:
		return append(head(3, false), body[1:]...), true
	case Long:
		return append(append(head(5, false), 0), body...), true
	case Frames:
		return append(append(head(4, true), body...), 0, 0), true
	case Done:
		return netproto.AppendDone(nil, envelope, nil), true
	case Garbage:
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true
	case Refuses:
		return netproto.AppendRefusal(nil, envelope, netproto.StatusFailed, "tired", nil), true
	case Extra:
		return append(right, 0), true
	case Twice:
		return append(bytes.Clone(right), right...), true
	case Silent:
		if s.OnSilence != nil {
			s.OnSilence()
		}
		return nil, true
	case Late:
		s.sleep()
	case Closes:
		return nil, false
	case Half:
		return right[:len(right)-2], false
	}
	return right, true
}

// sleep lets the others go on meanwhile.
func (s *Server) sleep() {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(s.Delay):
	case <-s.done:
	}
}
