package wire

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Relays carry what sockets, which are used by raw system calls, exchange with TLS connections. A
// socket is one end of a pair. Two goroutines copy between the other end and the TLS connection;
// they end when one of both is closed. Wait waits for all of them.
type Relays struct{ sync.WaitGroup }

// Over returns dial with TLS for the network "tls".
func (r *Relays) Over(dial DialFunc, cfg *tls.Config) DialFunc {
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	dialer := tls.Dialer{Config: cfg}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "tls" {
			return dial(ctx, network, address)
		}
		secured, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return r.start(secured.(*tls.Conn))
	}
}

// start returns our end for a TLS connection.
func (r *Relays) start(secured *tls.Conn) (net.Conn, error) {
	below := secured.NetConn() // whose Close does not wait for the server
	ours, theirs, err := socketPair()
	if err != nil {
		below.Close()
		return nil, err
	}
	relay := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // the other sees that its end is closed
		theirs.Close()
		below.Close()
	}
	r.Go(func() { relay(theirs, secured) })
	r.Go(func() { relay(secured, theirs) })
	return ours, nil
}

// socketPair returns both ends of a new pair of unix sockets.
func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	var failed error
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(file); err != nil {
			failed = err
		}
		file.Close() // the connection has a descriptor of its own
	}
	if failed == nil {
		return ends[0], ends[1], nil
	}
	for _, end := range ends {
		if end != nil {
			end.Close()
		}
	}
	return nil, nil, failed
}
