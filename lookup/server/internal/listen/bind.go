package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// keepAlive closes connections two minutes after their peer has vanished. Otherwise they
// would count against max_connections for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// Listener is what *net.TCPListener and *net.UnixListener have.
type Listener interface {
	net.Listener
	SetDeadline(t time.Time) error
	syscall.Conn
}

// Socket is a bound address.
type Socket struct {
	Listener
	Address string // with the actual port
	Local   bool   // only processes of this machine can connect

	given      bool   // others have it, too: see Binder.Given
	removeFile func() // removes the file of a unix socket; nil if there is none to remove
}

// Close stops listening and removes the socket's file. Accepted connections stay open.
func (s *Socket) Close() error {
	s.unlink()
	return s.Listener.Close()
}

// unlink removes the file of the socket, once.
func (s *Socket) unlink() {
	if s.removeFile != nil {
		s.removeFile()
		s.removeFile = nil
	}
}

// Binder binds the addresses of a server.
type Binder struct {
	Mode   fs.FileMode // of the files of unix sockets
	Logger *slog.Logger
	// Given are sockets that are bound already, by their addresses. Somebody else holds them open: what waits in their
	// backlogs at the end is left there for the next process, and so is the file of a unix socket.
	Given map[string]Listener

	listen func(ctx context.Context, network, address string) (net.Listener, error) // of TCP; nil: package net's
}

// BindAll binds all addresses. If one cannot be bound it closes the others and returns an
// error that names it.
func (b *Binder) BindAll(ctx context.Context, addresses []string) ([]*Socket, error) {
	var all []*Socket
	for _, address := range addresses {
		s, err := b.bind(ctx, address, addresses)
		if err == nil && ctx.Err() != nil { // package net may ignore the end of ctx
			_ = s.Close()
			err = ctx.Err()
		}
		if err != nil {
			CloseAll(all)
			return nil, fmt.Errorf("cannot serve %s: %w", address, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// CloseAll closes sockets.
func CloseAll(sockets []*Socket) {
	for _, s := range sockets {
		_ = s.Close()
	}
}

// bind binds one address of a server, which has the others, too.
func (b *Binder) bind(ctx context.Context, addr string, all []string) (*Socket, error) {
	network, address, err := api.SplitAddress(addr)
	given := b.Given[addr]
	switch {
	case err != nil:
		return nil, err
	case network == "unix" && given != nil:
		return &Socket{Listener: given, Address: "ipc://" + address, Local: true, given: true}, nil
	case network == "unix":
		return bindUnix(address, b.Mode)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if given != nil {
		return tcpSocket(given, network, host, true)
	}
	listen := b.listen
	if listen == nil {
		lc := net.ListenConfig{KeepAliveConfig: keepAlive}
		lc.SetMultipathTCP(false) // Go's default is on; clients are in the same network
		listen = lc.Listen
	}
	tcp := tcpNetwork(host, port, all)
	ln, err := listen(ctx, tcp, address)
	if tcp == "tcp" && errors.Is(err, syscall.EAFNOSUPPORT) && isUnspecified(host) {
		b.Logger.Warn("the system has no IPv6: IPv4 alone is served", "listen", addr)
		host = "0.0.0.0"
		ln, err = listen(ctx, "tcp4", net.JoinHostPort(host, port))
	}
	if err != nil {
		return nil, err
	}
	return tcpSocket(ln.(Listener), network, host, false)
}

// tcpSocket returns the socket of a TCP listener. Its address has the host as it is configured.
func tcpSocket(ln Listener, network, host string, given bool) (*Socket, error) {
	bound, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("the socket that was given for it is bound to %s", ln.Addr())
	}
	address := network + "://" + net.JoinHostPort(host, fmt.Sprint(bound.Port))
	return &Socket{Listener: ln, Address: address, Local: bound.IP.IsLoopback(), given: given}, nil
}

func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// tcpNetwork returns the network to bind a host and a port by: tcp4 for an IPv4 address, as package net would bind 0.0.0.0
// on IPv6 too, tcp6 for another one of IPv6 than [::], and tcp for a name. [::] is of both families, tcp, unless all has
// another address of this port that is not one of IPv6: then that has the IPv4 ones.
func tcpNetwork(host, port string, all []string) string {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return "tcp"
	case ip.Unmap().Is4():
		return "tcp4"
	case !ip.IsUnspecified():
		return "tcp6"
	}
	for i := range all {
		_, address, _ := api.SplitAddress(all[i])
		other, otherPort, err := net.SplitHostPort(address)
		if err != nil || otherPort != port || port == "0" {
			continue
		}
		if ip, err := netip.ParseAddr(other); err != nil || ip.Unmap().Is4() {
			return "tcp6"
		}
	}
	return "tcp"
}
