package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// listener is a bound address.
type listener struct {
	net.Listener
	addr       string // as Server.Addrs returns it
	removeFile func() // removes the file of the socket; nil if it has none
}

// Close stops listening and removes the socket's file. Accepted connections stay open.
func (l listener) Close() error {
	l.unlink()
	return l.Listener.Close()
}

// unlink removes the file of the socket, once.
func (l *listener) unlink() {
	if l.removeFile != nil {
		l.removeFile()
		l.removeFile = nil
	}
}

// keepAlive closes connections two minutes after their peer has vanished. Otherwise they
// would count against max_connections for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// listenAll binds all addresses. If one cannot be bound it closes the others and returns an
// error that names it.
func listenAll(ctx context.Context, cfg *Config) ([]listener, error) {
	var all []listener
	for _, addr := range cfg.Listen {
		ln, err := listen(ctx, addr, cfg)
		if err == nil && ctx.Err() != nil { // package net may ignore the end of ctx
			_ = ln.Close()
			err = ctx.Err()
		}
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("server: cannot serve %s: %w", addr, err)
		}
		all = append(all, ln)
	}
	return all, nil
}

// closeAll closes the listeners.
func closeAll(listeners []listener) {
	for _, ln := range listeners {
		_ = ln.Close()
	}
}

// listen binds one address.
func listen(ctx context.Context, addr string, cfg *Config) (listener, error) {
	network, address, err := api.SplitAddress(addr)
	if err != nil {
		return listener{}, err
	}
	if network == "unix" {
		return listenIPC(address, cfg.IPCMode)
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false) // Go's default is on; clients are in the same network
	ln, err := lc.Listen(ctx, tcpNetwork(address), address)
	if err != nil {
		return listener{}, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		_ = ln.Close()
		return listener{}, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	return listener{Listener: ln, addr: "tcp://" + net.JoinHostPort(host, fmt.Sprint(port))}, nil
}

// tcpNetwork returns tcp4 or tcp6 if an address is an IP address, otherwise tcp. With tcp,
// package net would bind 0.0.0.0 on IPv6 too.
func tcpNetwork(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "tcp"
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return "tcp"
	case ip.Unmap().Is4():
		return "tcp4"
	}
	return "tcp6"
}
