package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer connects to servers. Its errors say what is wrong with the server or the URL.
type dialer struct {
	tls *tls.Config // nil for plaintext

	// lastError is the error of the latest attempt, nil if it succeeded. A call that timed
	// out while the driver was dialling reports it.
	lastError atomic.Pointer[connError]
	// generation increases when all open connections become unusable. A connection of an
	// earlier generation refuses to write.
	generation atomic.Int64
	replies    replyMemory
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
	memory, tooMany := d.replies.open()
	if tooMany != nil {
		return nil, d.setLastError(&connError{text: addr + ": " + tooMany.Error()})
	}
	conn, err := d.connect(ctx, network, addr)
	if err != nil {
		memory.close()
		return nil, d.setLastError(err)
	}
	w := &checkedConn{Conn: conn, dialer: d, addr: addr, generation: d.generation.Load(), replies: replyScanner{memory: memory}}
	runtime.AddCleanup(w, (*connMemory).close, memory) // the driver does not close each connection
	if raw, ok := conn.(syscall.Conn); ok {
		return plaintextConn{checkedConn: w, raw: raw}, nil
	}
	return w, nil
}

// setLastError records err and returns it.
func (d *dialer) setLastError(err *connError) error {
	d.lastError.Store(err)
	return err
}

// connect returns a connection, after the TLS handshake if the URL says TLS.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, *connError) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &connError{text: addr + ": connection refused: no server is there, or at another port"}
	case err != nil:
		return nil, &connError{text: addr + ": cannot connect: " + rootCause(err)}
	case d.tls == nil:
		return conn, nil
	}
	secure, err := d.handshake(ctx, conn, addr)
	if err != nil {
		_ = conn.Close()
		text, mismatch := explainTLS(err)
		return nil, &connError{text: addr + ": " + text, mismatch: mismatch}
	}
	return secure, nil
}

// handshake does the TLS handshake. A plaintext Redis reads the first bytes of a handshake
// as the start of a command and waits for the rest. So if the server is silent for
// tlsProbeDelay, handshake sends a PING in plaintext on a second connection.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	cfg := d.tls
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probed := make(chan struct{})
	probe := time.AfterFunc(tlsProbeDelay, func() {
		defer close(probed)
		if speaksPlaintext(ctx, conn.RemoteAddr()) {
			cancel(errPlaintext)
		}
	})
	secure := tls.Client(conn, cfg)
	err := secure.HandshakeContext(ctx)
	if !probe.Stop() {
		cancel(nil)
		<-probed
	}
	if err != nil && errors.Is(context.Cause(ctx), errPlaintext) {
		err = errPlaintext
	}
	return secure, err
}

// tlsProbeDelay is how long a server may be silent in a handshake before it is probed in
// plaintext. A server in one data centre answers within a few milliseconds.
const tlsProbeDelay = 150 * time.Millisecond

// errPlaintext means that the server answers in plaintext.
var errPlaintext = errors.New("a plain server")

// explainTLS explains why a TLS handshake failed. A timeout is no mismatch: the server may
// also hang.
func explainTLS(err error) (text string, mismatch bool) {
	var notTLS tls.RecordHeaderError
	timeout := errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, errPlaintext) || errors.As(err, &notTLS) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || timeout {
		return "the server does not answer in TLS: is it a plain one, for redis:// instead of rediss://?", !timeout
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
// protocol is reported as such. It also checks all replies by a replyScanner: the driver never
// gets the end of a header that exceeds a bound. It closes itself when a read or write fails.
// The driver does not use it then, and does not close a new connection whose first command
// fails. The driver reads and writes on one goroutine at a time.
type checkedConn struct {
	net.Conn
	dialer     *dialer
	addr       string
	answered   bool  // the server has sent bytes; only the reading goroutine uses it
	generation int64 // of the dialer when this was made; never changes
	replies    replyScanner
}

// replyTypes are the bytes that a reply may begin with, in RESP 2 and 3.
const replyTypes = "+-:$*_,#!=(%~>|"

// Close may be called twice: the driver does not know that the connection closed itself.
func (w *checkedConn) Close() error {
	w.replies.memory.close()
	if err := w.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (w *checkedConn) Read(p []byte) (int, error) {
	n, err := w.read(p)
	if err != nil {
		_ = w.Close()
	}
	return n, err
}

func (w *checkedConn) read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if !w.answered {
		n, err = w.checkFirst(p, n, err)
	}
	if bad := w.replies.scan(p[:n]); bad != nil {
		return 0, &connError{badReply: true, text: w.addr + ": " + bad.Error()}
	}
	return n, err
}

// checkFirst checks the first bytes of the server. n and err are the results of reading them
// into p; it returns those of the connection.
func (w *checkedConn) checkFirst(p []byte, n int, err error) (int, error) {
	switch {
	case n > 0 && strings.IndexByte(replyTypes, p[0]) < 0:
		return 0, w.dialer.setLastError(w.explainNotRedis(p[:n]))
	case n > 0:
		w.answered = true
		w.dialer.lastError.Store(nil)
	case err != nil:
		return 0, w.explainNoAnswer(err)
	}
	return n, err
}

func (w *checkedConn) Write(p []byte) (int, error) {
	n, err := w.write(p)
	if err != nil {
		_ = w.Close()
	}
	return n, err
}

func (w *checkedConn) write(p []byte) (int, error) {
	if w.generation != w.dialer.generation.Load() {
		return 0, net.ErrClosed
	}
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
	switch {
	case w.dialer.tls != nil:
		return w.dialer.setLastError(&connError{mismatch: true, text: w.addr + ": the server ends TLS connections: does it want a certificate (cert and key)? " + rootCause(err)})
	case speaksTLS(w.Conn.RemoteAddr()):
		return w.dialer.setLastError(tlsOnlyError(w.addr))
	}
	return w.dialer.setLastError(&connError{text: w.addr + ": the server closes new connections without an answer: " +
		"has it too many clients, or is it not a Redis?"})
}

// explainNotRedis explains first bytes that no Redis sends.
func (w *checkedConn) explainNotRedis(first []byte) *connError {
	const alert, handshake = 0x15, 0x16 // content types of TLS records
	if len(first) > 1 && (first[0] == alert || first[0] == handshake) && first[1] == 3 {
		return tlsOnlyError(w.addr)
	}
	const maxShown = 40 // bytes
	return &connError{notRedis: true, mismatch: true, text: fmt.Sprintf("%s: the server is not a Redis: it answers %q", w.addr, first[:min(len(first), maxShown)])}
}

// tlsOnlyError is the error of a server that speaks TLS on a plaintext connection.
func tlsOnlyError(addr string) *connError {
	return &connError{mismatch: true, text: addr + ": the server speaks TLS: use rediss:// instead of redis://"}
}

// speaksPlaintext reports whether a server answers a PING in plaintext.
func speaksPlaintext(ctx context.Context, addr net.Addr) bool {
	conn, err := new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	first := make([]byte, 1) // of any reply: a server with a password replies with an error
	_, err = io.ReadFull(conn, first)
	return err == nil && strings.IndexByte(replyTypes, first[0]) >= 0
}

// speaksTLS reports whether a server that closed a plaintext connection speaks TLS.
func speaksTLS(addr net.Addr) bool {
	const timeout = 500 * time.Millisecond
	conn, err := net.DialTimeout(addr.Network(), addr.String(), timeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	var alert tls.AlertError // any answer in TLS counts, also that a certificate is missing
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	return err == nil || errors.As(err, &alert)
}

// plaintextConn is a connection without TLS. Its SyscallConn lets the driver see that the
// server has closed an idle connection.
type plaintextConn struct {
	*checkedConn
	raw syscall.Conn
}

func (p plaintextConn) SyscallConn() (syscall.RawConn, error) { return p.raw.SyscallConn() }
