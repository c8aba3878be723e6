package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// listener is an address that is listened on.
type listener struct {
	net.Listener
	addr   string // as Server.Addrs tells it
	remove func() // takes away the file of the socket, nil if it has none
}

// Close ends listening. What has been accepted goes on.
func (l listener) Close() error {
	l.unlink()
	return l.Listener.Close()
}

// unlink takes away the file of the socket, once.
func (l *listener) unlink() {
	if l.remove != nil {
		l.remove()
		l.remove = nil
	}
}

// keepAlive finds peers that vanished without a word, two minutes after their
// last one: their connections would count against max_connections for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// listenAll binds all addresses, or none and says which one cannot be.
func listenAll(ctx context.Context, cfg *Config) ([]listener, error) {
	var all []listener
	for _, addr := range cfg.Listen {
		ln, err := listen(ctx, addr, cfg)
		if err == nil && ctx.Err() != nil { // which package net need not have looked at
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

func closeAll(listeners []listener) {
	for _, ln := range listeners {
		_ = ln.Close()
	}
}

func listen(ctx context.Context, addr string, cfg *Config) (listener, error) {
	network, address, err := api.SplitAddress(addr)
	if err != nil {
		return listener{}, err
	}
	if network == "unix" {
		return listenIPC(address, cfg.IPCMode)
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false) // on by default, and of no use to clients this near
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

// tcpNetwork returns the network that takes an address for what it says: with
// "tcp", package net listens to IPv6 too where 0.0.0.0 is given.
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
