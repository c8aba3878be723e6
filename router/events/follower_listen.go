package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// acceptor accepts the publishers of a source that binds: one at a time. Others are closed at
// once; ZeroMQ tries again.
type acceptor struct {
	listener net.Listener
	accepted chan net.Conn // unbuffered: whoever comes while nobody waits is refused
	refused  func(net.Addr)
}

// listen binds the endpoint. refused is called for each connection that is refused.
func listen(endpoint string, refused func(net.Addr)) (*acceptor, error) {
	network, address, err := zmtp.ListenAddress(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) && network == "unix" && removeDeadSocket(address) {
		l, err = net.Listen(network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &acceptor{listener: l, accepted: make(chan net.Conn), refused: refused}, nil
}

// removeDeadSocket removes the file of a unix socket that nobody listens on: one that a killed
// process has left. It reports whether it did.
func removeDeadSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) && os.Remove(path) == nil
}

// run accepts until ctx ends, when it closes the listener.
func (a *acceptor) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = a.listener.Close() })
	defer stop()
	for {
		conn, err := a.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			sleep(ctx, minBackOff) // there may be no free file descriptor
			continue
		}
		select {
		case a.accepted <- conn:
		default:
			a.refused(conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

// accept waits for a publisher and does the handshake.
func (a *acceptor) accept(ctx context.Context, cfg zmtp.Config) (*zmtp.Conn, error) {
	select {
	case conn := <-a.accepted:
		return zmtp.Accept(ctx, conn, cfg)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
