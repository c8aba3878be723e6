package server

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// keepAlive closes connections two minutes after their peer has vanished. Otherwise they
// would count against max_connections for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// listenAll binds all addresses. If one cannot be bound it closes the others and returns an
// error that names it.
func listenAll(ctx context.Context, listeners []Listener, mode fs.FileMode) ([]*listener, error) {
	var all []*listener
	for i := range listeners {
		addr := listeners[i].Address
		ln, err := listen(ctx, addr, mode)
		if err == nil && ctx.Err() != nil { // package net may ignore the end of ctx
			_ = ln.Close()
			err = ctx.Err()
		}
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("server: cannot serve %s: %w", addr, err)
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

// listen binds one address. mode is that of a unix socket's file.
func listen(ctx context.Context, addr string, mode fs.FileMode) (*listener, error) {
	network, address, err := api.SplitAddress(addr)
	switch {
	case err != nil:
		return nil, err
	case network == "unix":
		return listenIPC(address, mode)
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false) // Go's default is on; clients are in the same network
	ln, err := lc.Listen(ctx, tcpNetwork(address), address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	bound := ln.Addr().(*net.TCPAddr)
	return &listener{
		netListener: ln.(netListener), addr: network + "://" + net.JoinHostPort(host, fmt.Sprint(bound.Port)), isLocal: bound.IP.IsLoopback(),
	}, nil
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
