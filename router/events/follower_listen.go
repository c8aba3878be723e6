package events

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// binding accepts the publishers at an endpoint that a source binds, one at a time. Others are closed at once, and ZeroMQ
// connects again.
type binding struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup
	accepted chan net.Conn  // unbuffered: whoever comes while nobody waits is refused
	refused  func(net.Addr) // is called for each connection that is refused
}

// bind binds an endpoint until close.
func bind(endpoint string, refused func(net.Addr)) (*binding, error) {
	listener, err := listen(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &binding{listener: listener, cancel: cancel, accepted: make(chan net.Conn), refused: refused}
	b.running.Go(func() { b.run(ctx) })
	return b, nil
}

// close closes the listener. It may be called more than once.
func (b *binding) close() {
	b.cancel()
	b.running.Wait()
}

// listen binds an endpoint.
func listen(endpoint string) (net.Listener, error) {
	network, address, err := zmtp.ListenAddress(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) && network == "unix" && removeDeadSocket(address) {
		l, err = net.Listen(network, address)
	}
	return l, err
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
func (b *binding) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = b.listener.Close() })()
	for {
		conn, err := b.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			sleep(ctx, minBackOff) // there may be no free file descriptor
			continue
		}
		select {
		case b.accepted <- conn:
		default:
			b.refused(conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

// accept waits for a publisher and does the handshake.
func (b *binding) accept(ctx context.Context, cfg zmtp.Config) (*zmtp.Conn, error) {
	select {
	case conn := <-b.accepted:
		return zmtp.Accept(ctx, conn, cfg)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
