package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
)

// dialer connects to servers. Its errors say what is wrong with the server or the URL.
type dialer struct {
	processes *processes
	tls       *tls.Config            // nil for plaintext
	host      atomic.Pointer[string] // of nodes that a redirection names by their port alone

	// lastError is the error of the latest attempt, nil if it succeeded. A call that timed
	// out while the driver was dialling reports it.
	lastError atomic.Pointer[connError]
}

// connError explains why a connection cannot be made or used. It has no Unwrap: the driver
// unwraps errors of new connections once, which would lose the text.
type connError struct {
	text     string
	notRedis bool // the server does not speak the Redis protocol
	mismatch bool // counts as backend.ErrMismatch
	badReply bool // counts as backend.ErrReply: the connection was usable before
}

func (e *connError) Error() string { return e.text }

// dial is the driver's Dialer.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if strings.HasPrefix(addr, ":") {
		addr = net.JoinHostPort(*d.host.Load(), addr[1:])
	}
	w := &checkedConn{dialer: d, addr: addr}
	if err := d.connect(ctx, network, w); err != nil {
		return nil, d.setLastError(err)
	}
	d.processes.addConn(w)
	return w, nil
}

// setLastError records err and returns it.
func (d *dialer) setLastError(err *connError) error {
	d.lastError.Store(err)
	return err
}

// connect connects w, with the TLS handshake if the URL says TLS. If nothing listens, the process is gone.
func (d *dialer) connect(ctx context.Context, network string, w *checkedConn) *connError {
	addr := w.addr
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		d.processes.generation.Add(1)
		d.processes.refused.Store(true)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &connError{text: addr + ": connection refused: no server is there, or at another port"}
	case err != nil:
		return &connError{text: addr + ": cannot connect: " + rootCause(err)}
	}
	w.Conn, w.raw = conn, conn.(syscall.Conn)
	if d.tls == nil {
		return nil
	}
	cfg := d.tls
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, cfg)
	d.lastError.Store(&connError{text: addr + ": " + noTLS}) // a plain server is silent until the call ends
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		text, mismatch := explainTLS(err)
		return &connError{text: addr + ": " + text, mismatch: mismatch}
	}
	w.Conn = secure
	return nil
}

// noTLS is the error of a server that does not answer a TLS handshake.
const noTLS = "the server does not answer in TLS: is it a plain one, for redis:// instead of rediss://?"

// explainTLS explains why a TLS handshake failed. A timeout is no mismatch: the server may
// also hang.
func explainTLS(err error) (text string, mismatch bool) {
	var notTLS tls.RecordHeaderError
	timeout := errors.Is(err, context.DeadlineExceeded)
	if errors.As(err, &notTLS) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || timeout {
		return noTLS, !timeout
	}
	return "TLS: " + err.Error(), true
}

// rootCause returns the text of the innermost error, which has no addresses.
func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// checkedConn is a connection that checks the first bytes of the server, so that another
// protocol is reported as such. It also checks all replies by a replyLimit: the driver never
// gets the end of a header that exceeds a bound. It closes itself when a read or write fails.
// The driver does not use it then, and does not close a new connection whose first command
// fails. The driver reads and writes on one goroutine at a time.
type checkedConn struct {
	net.Conn
	raw      syscall.Conn // below TLS
	dialer   *dialer
	addr     string
	answered bool // the server has sent bytes; only the reading goroutine uses it
	replies  replyLimit
	reused   bool          // it has been idle
	heard    bool          // the server has sent something since
	uses     atomic.Uint64 // reads and writes

	// Of processes.newlyEnded:
	usesSeen uint64
	endSeen  bool
}

// Close may be called twice: the driver does not know that the connection closed itself.
func (w *checkedConn) Close() error {
	w.dialer.processes.removeConn(w)
	if err := w.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (w *checkedConn) Read(p []byte) (int, error) {
	w.uses.Add(1)
	n, err := w.read(p)
	w.heard = w.heard || n > 0
	if err != nil {
		w.lost(err)
	}
	return n, err
}

// lost closes the connection, which has failed with a call on it. Unless this side has ended it, the server's process may
// have ended. If it was idle and the server has not answered since, the server may have cut it before it got the
// call: the next connection tells whether it is to the same process.
func (w *checkedConn) lost(err error) {
	timeout, ok := errors.AsType[net.Error](err)
	endedHere := errors.Is(err, net.ErrClosed) || ok && timeout.Timeout()
	if cut := w.reused && !w.heard; !endedHere && !cut {
		w.dialer.processes.generation.Add(1)
	}
	_ = w.Close()
}

func (w *checkedConn) read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if !w.answered {
		n, err = w.checkFirst(p, n, err)
	}
	if bad := w.replies.check(p[:n]); bad != nil {
		return 0, &connError{badReply: true, text: w.addr + ": " + bad.Error()}
	}
	return n, err
}

// tooManyClients is the error with which a server refuses a connection.
const tooManyClients = "ERR max number of clients reached"

// checkFirst checks the first bytes of the server. n and err are the results of reading them
// into p; it returns those of the connection.
func (w *checkedConn) checkFirst(p []byte, n int, err error) (int, error) {
	switch {
	case n > 0 && strings.IndexByte(replyTypes, p[0]) < 0:
		return 0, w.dialer.setLastError(w.explainNotRedis(p[:n]))
	case strings.HasPrefix(string(p[:n]), "-"+tooManyClients): // and it closes: the driver would see that alone
		return 0, w.dialer.setLastError(&connError{text: w.addr + ": the server refuses new connections: " + tooManyClients +
			"; raise its maxclients, or lower pool_size"})
	case n > 0:
		w.answered = true
		w.dialer.lastError.Store(nil)
	case err != nil:
		return 0, w.explainNoAnswer(err)
	}
	return n, err
}

func (w *checkedConn) Write(p []byte) (int, error) {
	w.uses.Add(1)
	n, err := w.write(p)
	if err != nil {
		w.lost(err)
	}
	return n, err
}

func (w *checkedConn) write(p []byte) (int, error) {
	w.replies.reset() // the driver has read the replies to the request before
	n, err := w.Conn.Write(p)
	if err != nil && !w.answered {
		err = w.explainNoAnswer(err)
	}
	return n, err
}

// explainNoAnswer explains why a connection failed before the server sent a byte. It returns
// err itself after a timeout, or if this side closed the connection.
func (w *checkedConn) explainNoAnswer(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
		return err
	}
	if w.dialer.tls != nil {
		return w.dialer.setLastError(&connError{mismatch: true, text: w.addr + ": the server ends TLS connections: does it want a certificate (cert and key)? " + rootCause(err)})
	}
	return w.dialer.setLastError(&connError{text: w.addr + ": the server closes new connections without an answer: " +
		"has it too many clients, does it want TLS (rediss://), is it a proxy that does not know HELLO, or is it not a Redis?"})
}

// explainNotRedis explains first bytes that no Redis sends.
func (w *checkedConn) explainNotRedis(first []byte) *connError {
	const tlsAlert = 0x15 // content type of a TLS record
	if first[0] == tlsAlert {
		return &connError{mismatch: true, text: w.addr + ": the server speaks TLS: use rediss:// instead of redis://"}
	}
	const maxShown = 40 // bytes
	return &connError{notRedis: true, mismatch: true, text: fmt.Sprintf("%s: the server is not a Redis: it answers %q", w.addr, first[:min(len(first), maxShown)])}
}
