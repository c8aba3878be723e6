package cpushare

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is a connection of an http.Server. It holds a processor from the end of a Read to the next Read, through the parsing
// of headers, the handshake of TLS, and the handler; but not while it waits for its peer in a Read or Write.
//
// From the end of a request's body to the end of its handler net/http also reads in a goroutine of its own, to see whether
// the client is gone. Such a Read changes nothing.
//
// A probe, which asks whether the server lives, needs none: one at a time is answered beside the share.
type conn struct {
	net.Conn
	listener *listener
	probe    atomic.Bool // its request is answered beside the share
	claim    *Claim
	peer     Key             // that of the claim without a credential
	raw      syscall.RawConn // of the socket, or noSocket
	secure   bool            // it is below one with TLS
	phase    atomic.Int32    // of the request
	bodyRead atomic.Bool     // to its end
}

// Phases of a request.
const (
	arriving int32 = iota // from the end of the one before
	arrived               // its header has: a handler follows, or a reply without one
	handled               // a handler runs
	replied               // no handler runs
)

// Bind makes a server compute with the share: all that it does for the connections of a listener, which it returns. Its Handler,
// ConnContext and ConnState must have been set. ConnState gets the connections of l. name is that of the listener. probes
// are paths that ask whether the server lives, and cost little. Beside HTTP/1 the server has no protocol: a connection of
// HTTP/2 would have many requests at a time.
func (s *Share) Bind(server *http.Server, l net.Listener, name string, probes ...string) net.Listener {
	server.Handler = &handler{server.Handler}
	server.DisableGeneralOptionsHandler = true // it would read a body without the handler
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	connContext, connState := server.ConnContext, server.ConnState
	server.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if connContext != nil {
			ctx = connContext(ctx, nc)
		}
		c := unwrap(nc)
		c.secure = c != nc
		return context.WithValue(ctx, connKey{}, c)
	}
	server.ConnState = func(nc net.Conn, state http.ConnState) {
		c := unwrap(nc)
		if connState != nil {
			connState(c.Conn, state)
		}
		switch state {
		case http.StateActive:
			c.phase.Store(arrived)
		case http.StateIdle:
			c.phase.Store(arriving)
			c.bodyRead.Store(false)
			if !c.endProbe() {
				c.claim.Yield() // the buffer may have the next request; a closed claim ends the next Read, or the handler
			}
		case http.StateClosed:
			c.endProbe()
		}
	}
	return &listener{Listener: l, share: s, name: name, probes: probes}
}

// unwrap returns the connection of a listener's or of one over TLS.
func unwrap(nc net.Conn) *conn {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	return nc.(*conn)
}

type listener struct {
	net.Listener
	share  *Share
	name   string
	probes []string    // paths
	probed atomic.Bool // a probe is answered
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	peer := KeyOf(l.name, nc.RemoteAddr())
	c := &conn{Conn: nc, listener: l, peer: peer, claim: l.share.NewClaim(peer), raw: noSocket{}}
	if socket, ok := nc.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	return c, nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	phase := c.phase.Load()
	if phase == arrived || c.bodyRead.Load() {
		return c.Conn.Read(p) // by the other goroutine
	}
	if phase == handled && c.claim.inTurn() { // its body
		if n := c.now(c.raw.Read, unix.Read, p); n > 0 {
			return n, nil
		}
	}
	c.endProbe() // it waits for its peer
	c.claim.Release()
	n, err := c.Conn.Read(p)
	if phase == arriving && c.beginProbe(p[:n]) {
		return n, err
	}
	if !c.claim.Acquire() {
		return n, net.ErrClosed
	}
	return n, err
}

// beginProbe reports whether data are a probe, and nothing else, that is answered beside the share.
func (c *conn) beginProbe(data []byte) bool {
	method, rest, _ := bytes.Cut(data, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	const end = "\r\n\r\n"
	isProbe := (string(method) == http.MethodGet || string(method) == http.MethodHead) &&
		slices.Contains(c.listener.probes, string(path)) && bytes.Index(data, []byte(end)) == len(data)-len(end)
	c.probe.Store(isProbe && c.listener.probed.CompareAndSwap(false, true))
	return c.probe.Load()
}

// endProbe lets another probe be answered beside the share. It reports whether this was one.
func (c *conn) endProbe() bool {
	was := c.probe.Swap(false)
	if was {
		c.listener.probed.Store(false)
	}
	return was
}

// Write implements net.Conn. What the kernel takes at once is written with the processor held.
func (c *conn) Write(p []byte) (int, error) {
	if !c.probe.Load() && !c.claim.Acquire() {
		return 0, net.ErrClosed
	}
	n, err := c.now(c.raw.Write, unix.Write, p), error(nil)
	if c.probe.Load() && n == len(p) {
		return n, nil
	}
	c.endProbe()
	if n < len(p) {
		c.claim.block()
		var more int
		more, err = c.Conn.Write(p[n:])
		n += more
		c.claim.unblock()
	}
	switch phase := c.phase.Load(); {
	case phase == handled:
		if !c.claim.Acquire() && err == nil {
			err = net.ErrClosed
		}
	case phase != replied || c.secure:
		c.claim.Release() // net/http may sleep now, before it closes the connection; without TLS it calls CloseWrite first
	}
	return n, err
}

// now reads or writes what goes without a wait, and returns how many bytes did. After an error, which the same call of Conn
// tells, that is 0. ready is the method of raw.
func (c *conn) now(ready func(func(fd uintptr) bool) error, call func(fd int, p []byte) (int, error), p []byte) (n int) {
	err := ready(func(fd uintptr) bool {
		n, _ = call(int(fd), p)
		return true
	})
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// noSocket is the syscall.RawConn of a connection that is none of the kernel's.
type noSocket struct{}

func (noSocket) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (noSocket) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (noSocket) Write(func(uintptr) bool) error { return errors.ErrUnsupported }

// CloseWrite ends the stream to the peer. net/http sleeps after that. Over TLS it only writes an alert.
func (c *conn) CloseWrite() error {
	c.claim.Release()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.claim.Close()
	return c.Conn.Close()
}

// handler runs another with the processor held.
type handler struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := connOf(r.Context())
	if r.Body == http.NoBody {
		c.bodyRead.Store(true)
	} else {
		r = r.WithContext(r.Context()) // net/http looks at the Body of its own later
		r.Body = &body{r.Body, c}
	}
	c.phase.Store(handled)
	defer c.phase.Store(replied)
	if !c.probe.Load() && !c.claim.Acquire() {
		panic(http.ErrAbortHandler)
	}
	h.Handler.ServeHTTP(w, r)
}

// body is that of a request.
type body struct {
	io.ReadCloser
	conn *conn
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.conn.bodyRead.Store(true)
		b.conn.claim.Acquire() // the other goroutine reads since before that, and may have released it; a closed claim ends the reply
	}
	return n, err
}

// connKey is that of a *conn in the context of a request.
type connKey struct{}

// connOf returns the connection of a request, nil if it is of another server.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// Yield gives the processor of a request to others that wait for one, and waits for its next turn. A handler that computes
// for milliseconds calls it about every 100 µs. ctx is that of the request. Of a server without Bind it does nothing.
func Yield(ctx context.Context) {
	if c := connOf(ctx); c != nil {
		c.claim.Yield()
	}
}

// Pause releases the processor of a request while its handler waits for something, until resume is called. ctx is as for
// Yield.
func Pause(ctx context.Context) (resume func()) {
	c := connOf(ctx)
	if c == nil {
		return func() {}
	}
	return c.claim.Pause()
}

// KeyOfRequest returns the key of the sender of a request: its credential or, if that is "", its address.
func KeyOfRequest(r *http.Request, credential string) Key {
	if credential != "" {
		return Key{Credential: credential}
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // fails for none, which has a key, too
	return KeyOf("", net.TCPAddrFromAddrPort(peer))
}

// SetCredential says what credential the sender of a request has: those with different ones take turns, whatever their
// address is. "": none. ctx is as for Yield.
func SetCredential(ctx context.Context, name string) {
	c := connOf(ctx)
	if c == nil {
		return
	}
	key := c.peer
	if name != "" {
		key = Key{Listener: key.Listener, Credential: name}
	}
	c.claim.setKey(key)
}
