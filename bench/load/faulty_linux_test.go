package load

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// fault is what a server does wrong.
type fault string

// The faults. Those of lookups show on every tenth, counted over all connections,
// unless noted.
const (
	noFault   fault = ""
	offByOne  fault = "off by one"    // one block more or less
	short     fault = "short"         // a hit of three bytes
	garbage   fault = "garbage"       // bytes that are no frame
	refuses   fault = "refuses"       // 00
	extra     fault = "extra"         // a byte more than the answer
	twice     fault = "twice"         // the answer again
	swaps     fault = "swaps"         // two answers in the wrong order, whenever two wait
	silent    fault = "silent"        // no answer, from the tenth lookup on
	late      fault = "late"          // an answer after the delay
	closes    fault = "closes"        // the connection ends
	half      fault = "half"          // the connection ends within an answer
	forgets   fault = "forgets"       // every store is answered, and every second not done
	noStore   fault = "refuses store" // every tenth store is refused
	lastTwice fault = "last twice"    // an answer comes again, just before a ping's
)

// blockSize is what a hash covers at a faulty server.
const blockSize = 16

// faulty is a server in this process with one full-attention group. The zero value
// of a field means none.
type faulty struct {
	fault  fault
	delay  time.Duration // before a late answer
	honest int           // lookups before the first fault
	// onSilence is called whenever a silent server gives no answer.
	onSilence func()

	listener net.Listener
	waiting  sync.WaitGroup
	done     chan struct{}

	mu              sync.Mutex
	stored          map[string]bool
	conns           map[net.Conn]bool
	lookups, stores int
}

// start serves on loopback until the test ends, and returns the address.
func (s *faulty) start(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
	t.Cleanup(s.close)
	return "tcp://" + listener.Addr().String()
}

// close ends all connections and waits for their goroutines.
func (s *faulty) close() {
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
	server *faulty
	conn   net.Conn
	in     []byte
	last   []byte // the last answer to a lookup
}

func (s *faulty) serve(conn net.Conn) {
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
		if !p.answerAll() {
			return
		}
	}
}

// answerAll answers the requests that have come whole; false ends the connection.
func (p *peer) answerAll() bool {
	var replies [][]byte
	for {
		frames, used, err := netproto.ParseMessage(p.in, netproto.Limits{}, nil)
		if err != nil {
			break
		}
		reply, more := p.reply(frames)
		p.in = p.in[used:]
		replies = append(replies, reply)
		if !more {
			_, _ = p.conn.Write(bytes.Join(replies, nil))
			return false
		}
	}
	if p.server.fault == swaps && len(replies) > 1 {
		replies[0], replies[1] = replies[1], replies[0]
	}
	_, _ = p.conn.Write(bytes.Join(replies, nil))
	return true
}

// reply returns the answer, and false to end the connection after it.
func (p *peer) reply(frames [][]byte) (answer []byte, more bool) {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(frames[0]) {
	case "lookup":
		return p.lookup(frames)
	case "store", "evict":
		return s.change(string(frames[0]), frames[3]), true
	case "ping":
		var again []byte
		if s.fault == lastTwice && p.last != nil {
			again = p.last
		}
		return netproto.AppendDone(bytes.Clone(again), nil, netproto.AppendFrame(nil, frames[1], false)), true
	}
	return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, fmt.Sprintf("unknown request %q", frames[0]), nil), true
}

// change stores or evicts.
func (s *faulty) change(what string, keys []byte) []byte {
	store := what == "store"
	var do bool
	if store {
		s.stores++
		if s.fault == noStore && s.stores%10 == 0 {
			return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "no room", nil)
		}
		do = s.fault != forgets || s.stores%2 == 1
	} else {
		do = true
	}
	for at := 0; do && at+hashLen <= len(keys); at += hashLen {
		if store {
			s.stored[string(keys[at:at+hashLen])] = true
		} else {
			delete(s.stored, string(keys[at:at+hashLen]))
		}
	}
	return netproto.AppendDone(nil, nil, nil)
}

// lookup answers a lookup, rightly or not.
func (p *peer) lookup(frames [][]byte) (answer []byte, more bool) {
	s := p.server
	hit := uint32(0)
	for b := frames[3]; len(b) >= hashLen && s.stored[string(b[:hashLen])]; b = b[hashLen:] {
		hit += blockSize
	}
	hit = min(hit, uint32(netproto.ParseInt(frames[1])))
	right := netproto.AppendHit(nil, nil, hit)
	p.last = right
	s.lookups++
	if s.lookups <= s.honest || s.lookups%10 != 0 && s.fault != silent {
		return right, true
	}
	switch s.fault {
	case offByOne:
		return netproto.AppendHit(nil, nil, hit^blockSize), true
	case short:
		return netproto.AppendFrame(nil, right[3:], false), true
	case garbage:
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true
	case refuses:
		return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "tired", nil), true
	case extra:
		return append(right, 0), true
	case twice:
		return append(bytes.Clone(right), right...), true
	case silent:
		if s.onSilence != nil {
			s.onSilence()
		}
		return nil, true
	case late:
		s.sleep()
	case closes:
		return nil, false
	case half:
		return right[:len(right)-2], false
	}
	return right, true
}

// sleep lets the others go on meanwhile.
func (s *faulty) sleep() {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(s.delay):
	case <-s.done:
	}
}
