package server

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

// binder binds the addresses of a server.
type binder struct {
	ipcMode fs.FileMode // of the files of unix sockets
	log     *slog.Logger
	listen  func(ctx context.Context, network, address string) (net.Listener, error) // of TCP
}

func newBinder(cfg *Config) *binder {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false) // Go's default is on; clients are in the same network
	return &binder{cfg.IPCMode, cfg.Logger, lc.Listen}
}

// bindAll binds all addresses. If one cannot be bound it closes the others and returns an
// error that names it.
func (b *binder) bindAll(ctx context.Context, listeners []Listener) ([]*listener, error) {
	var all []*listener
	for i := range listeners {
		addr := listeners[i].Address
		ln, err := b.bind(ctx, addr, listeners)
		if err == nil && ctx.Err() != nil { // package net may ignore the end of ctx
			_ = ln.Close()
			err = ctx.Err()
		}
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("cannot serve %s: %w", addr, err)
		}
		ln.setSettings(listeners[i].Settings)
		all = append(all, ln)
	}
	return all, nil
}

// closeAll closes the listeners.
func closeAll(listeners []*listener) {
	for _, ln := range listeners {
		_ = ln.Close()
	}
}

// bind binds one address of a server, which has the others, too.
func (b *binder) bind(ctx context.Context, addr string, all []Listener) (*listener, error) {
	network, address, err := api.SplitAddress(addr)
	switch {
	case err != nil:
		return nil, err
	case network == "unix":
		return listenIPC(address, b.ipcMode)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	tcp := tcpNetwork(host, port, all)
	ln, err := b.listen(ctx, tcp, address)
	if tcp == "tcp" && errors.Is(err, syscall.EAFNOSUPPORT) && isUnspecified(host) {
		b.log.Warn("the system has no IPv6: IPv4 alone is served", "listen", addr)
		host = "0.0.0.0"
		ln, err = b.listen(ctx, "tcp4", net.JoinHostPort(host, port))
	}
	if err != nil {
		return nil, err
	}
	bound := ln.Addr().(*net.TCPAddr)
	return &listener{
		netListener: ln.(netListener), addr: network + "://" + net.JoinHostPort(host, fmt.Sprint(bound.Port)), isLocal: bound.IP.IsLoopback(),
	}, nil
}

func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// tcpNetwork returns the network to bind a host and a port by: tcp4 for an IPv4 address, as package net would bind 0.0.0.0
// on IPv6 too, tcp6 for another one of IPv6 than [::], and tcp for a name. [::] is of both families, tcp, unless all has
// another address of this port that is not one of IPv6: then that has the IPv4 ones.
func tcpNetwork(host, port string, all []Listener) string {
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
		_, address, _ := api.SplitAddress(all[i].Address)
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
