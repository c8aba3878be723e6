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
	"time"
)

// dialer makes connections whose failures say what is wrong.
type dialer struct {
	tls *tls.Config // nil: plain

	// last is why the latest attempt failed, nil if it did not. A call that ran out
	// of time while the driver dialled tells it.
	last atomic.Pointer[connError]
	// spoilt counts the times when all connections until then became unusable.
	spoilt atomic.Int64
}

// connError is a connection that cannot be made or used. It must not unwrap: the
// driver takes one wrapper off what fails while a connection begins.
type connError struct {
	text     string
	reply    bool // something else than a Redis answered
	mismatch bool // as backend.ErrMismatch has it
}

func (e *connError) Error() string { return e.text }

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.connect(ctx, network, addr)
	if err != nil {
		return nil, d.fail(err)
	}
	w := &watched{Conn: conn, dialer: d, addr: addr, spoilt: d.spoilt.Load()}
	if raw, ok := conn.(syscall.Conn); ok {
		return plain{watched: w, raw: raw}, nil
	}
	return w, nil
}

func (d *dialer) fail(err *connError) error {
	d.last.Store(err)
	return err
}

func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, *connError) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &connError{text: addr + ": connection refused: no server is there, or at another port"}
	case err != nil:
		return nil, &connError{text: addr + ": cannot connect: " + innermost(err)}
	case d.tls == nil:
		return conn, nil
	}
	secure, err := d.handshake(ctx, conn, addr)
	if err != nil {
		_ = conn.Close()
		text, mismatch := tlsText(err)
		return nil, &connError{text: addr + ": " + text, mismatch: mismatch}
	}
	return secure, nil
}

// handshake begins TLS on a connection. A plain Redis takes the beginning of a
// handshake for that of a command and waits for the rest: so one that is silent for a
// while is asked in plain as well.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	cfg := d.tls
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	asked := make(chan struct{})
	silent := time.AfterFunc(tlsPatience, func() {
		defer close(asked)
		if speaksPlain(ctx, conn.RemoteAddr()) {
			cancel(errPlain)
		}
	})
	secure := tls.Client(conn, cfg)
	err := secure.HandshakeContext(ctx)
	if !silent.Stop() {
		cancel(nil)
		<-asked
	}
	if err != nil && errors.Is(context.Cause(ctx), errPlain) {
		err = errPlain
	}
	return secure, err
}

// tlsPatience is how long a server may be silent in a handshake before it is asked in
// plain.
const tlsPatience = 150 * time.Millisecond

// errPlain says that a server answers in plain.
var errPlain = errors.New("a plain server")

// tlsText says why a TLS handshake failed. Silence may also be that of a server that
// hangs.
func tlsText(err error) (text string, mismatch bool) {
	var notTLS tls.RecordHeaderError
	silent := errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, errPlain) || errors.As(err, &notTLS) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || silent {
		return "the server does not answer in TLS: is it a plain one, for redis:// instead of rediss://?", !silent
	}
	return "TLS: " + err.Error(), true
}

// innermost returns the last cause of a network error, without the addresses.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// watched is a connection that looks at the first bytes of the server, so that
// what is not a Redis is told as such. It closes itself when it fails: the driver uses
// it no more then, and forgets to close one that fails while it begins.
type watched struct {
	net.Conn
	dialer *dialer
	addr   string
	begun  bool  // the first bytes have been read; the driver reads from one goroutine at a time
	spoilt int64 // the dialer's when it was made
}

// replyBytes are all first bytes of a reply.
const replyBytes = "+-:$*_,#!=(%~>|"

// Close may be called again: the driver does not know what was closed already.
func (w *watched) Close() error {
	if err := w.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.read(p)
	if err != nil {
		_ = w.Close()
	}
	return n, err
}

func (w *watched) read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.begun {
		return n, err
	}
	switch {
	case n > 0 && strings.IndexByte(replyBytes, p[0]) < 0:
		return 0, w.dialer.fail(w.foreign(p[:n]))
	case n > 0:
		w.begun = true
		w.dialer.last.Store(nil)
	case err != nil:
		return 0, w.refused(err)
	}
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.write(p)
	if err != nil {
		_ = w.Close()
	}
	return n, err
}

func (w *watched) write(p []byte) (int, error) {
	if w.spoilt != w.dialer.spoilt.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Write(p)
	if err != nil && !w.begun {
		err = w.refused(err)
	}
	return n, err
}

// refused says why a connection ends before the server has said anything; err
// itself is right about one that is only slow, or that we end ourselves.
func (w *watched) refused(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
		return err
	}
	switch {
	case w.dialer.tls != nil:
		return w.dialer.fail(&connError{mismatch: true, text: w.addr + ": the server ends TLS connections: does it want a certificate (cert and key)? " + innermost(err)})
	case speaksTLS(w.Conn.RemoteAddr()):
		return w.dialer.fail(wantsTLS(w.addr))
	}
	return w.dialer.fail(&connError{text: w.addr + ": the server closes new connections without an answer: " +
		"has it too many clients, or is it not a Redis?"})
}

// foreign tells what answered so.
func (w *watched) foreign(first []byte) *connError {
	const alert, handshake = 0x15, 0x16 // content types of TLS records
	if len(first) > 1 && (first[0] == alert || first[0] == handshake) && first[1] == 3 {
		return wantsTLS(w.addr)
	}
	const most = 40
	return &connError{reply: true, mismatch: true, text: fmt.Sprintf("%s: the server is not a Redis: it answers %q", w.addr, first[:min(len(first), most)])}
}

func wantsTLS(addr string) *connError {
	return &connError{mismatch: true, text: addr + ": the server speaks TLS: use rediss:// instead of redis://"}
}

// speaksPlain asks a server that is silent in TLS.
func speaksPlain(ctx context.Context, addr net.Addr) bool {
	conn, err := new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	first := make([]byte, 1) // of a reply: an error, if there is a password
	_, err = io.ReadFull(conn, first)
	return err == nil && strings.IndexByte(replyBytes, first[0]) >= 0
}

// speaksTLS asks a server that has just closed a plain connection without a word.
func speaksTLS(addr net.Addr) bool {
	const patience = 500 * time.Millisecond
	conn, err := net.DialTimeout(addr.Network(), addr.String(), patience)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var told tls.AlertError // with a certificate or without, any answer in TLS will do
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	return err == nil || errors.As(err, &told)
}

// plain is a connection without TLS. It has a descriptor, through which the driver
// sees that an idle connection has been closed.
type plain struct {
	*watched
	raw syscall.Conn
}

func (p plain) SyscallConn() (syscall.RawConn, error) { return p.raw.SyscallConn() }
