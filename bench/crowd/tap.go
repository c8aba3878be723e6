//go:build linux

package crowd

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// tap passes connections on to a master. It counts the keys of lookups, and those that there are, which the master
// leases. Safe for concurrent use.
type tap struct {
	listener    net.Listener
	master      string
	record      func(request []byte) // called with each question for keys, if it is set
	keys, found atomic.Int64
	running     sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// newTap returns a tap on a free port of loopback. The caller closes it.
func newTap(master string, record func(request []byte)) (*tap, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{listener: listener, master: master, record: record}
	t.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			t.serve(conn)
		}
	})
	return t, nil
}

// addr returns the address host:port.
func (t *tap) addr() string { return t.listener.Addr().String() }

// close closes the connections, and waits until nothing runs.
func (t *tap) close() {
	_ = t.listener.Close()
	t.mu.Lock()
	t.closed = true
	for _, c := range t.conns {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.running.Wait()
}

// serve passes a connection on.
func (t *tap) serve(client net.Conn) {
	master, err := net.Dial("tcp", t.master)
	if err != nil {
		_ = client.Close() // who asks sees that the master is gone
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = append(t.conns, client, master)
	if t.closed {
		_, _ = client.Close(), master.Close()
		return
	}
	asked := make(chan int, 64) // keys of the requests that have no reply yet
	pass := func(from, to net.Conn, one func() error) {
		for one() == nil {
		}
		_, _ = from.Close(), to.Close() // the other direction ends, too
	}
	t.running.Go(func() {
		defer close(asked)
		pass(client, master, func() error { return t.passRequest(client, master, asked) })
	})
	t.running.Go(func() { pass(master, client, func() error { return t.passReply(master, client, asked) }) })
}

// passRequest passes one request on.
func (t *tap) passRequest(from io.Reader, to io.Writer, asked chan<- int) error {
	request, err := readMessage(from, requestHead)
	if err != nil {
		return err
	}
	keys := existKeys(request)
	if keys > 0 && t.record != nil {
		t.record(request)
	}
	asked <- keys
	_, err = to.Write(request)
	return err
}

// passReply passes one reply on, and counts it.
func (t *tap) passReply(from io.Reader, to io.Writer, asked <-chan int) error {
	reply, err := readMessage(from, replyHead)
	if err != nil {
		return err
	}
	if keys := <-asked; keys > 0 {
		t.keys.Add(int64(keys))
		t.found.Add(int64(countFound(answersOf(reply, keys))))
	}
	_, err = to.Write(reply)
	return err
}
