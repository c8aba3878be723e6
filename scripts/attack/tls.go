//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitline/hitline/internal/certtest"
)

// tlsScheme begins the address of a server with TLS. Others have none.
const tlsScheme = "tls://"

// writeTLSConfig writes the configuration of a server with TLS, and its certificate, into a
// directory. It returns the path of the configuration.
func writeTLSConfig(dir string) (string, error) {
	cert, key := certtest.WriteFiles(dir, "server", certtest.NewCA("attack").Leaf("127.0.0.1"))
	path := filepath.Join(dir, "hitline.yaml")
	text := fmt.Sprintf("listen:\n  - {address: \"tls://127.0.0.1:0\", tls: {cert: %q, key: %q}}\n", cert, key)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("attack: cannot write the configuration of a server: %w", err)
	}
	return path, nil
}

// dialWith connects to a server with a dialer, and makes the handshake if the address has TLS.
// The certificate is not verified: the server is one that this program has started.
func dialWith(dialer *net.Dialer, addr string) (net.Conn, error) {
	host, isTLS := strings.CutPrefix(addr, tlsScheme)
	if !isTLS {
		conn, err := dialer.Dial("tcp", host)
		if err != nil {
			return nil, fmt.Errorf("attack: cannot connect: %w", err)
		}
		return conn, nil
	}
	conn, err := tls.DialWithDialer(dialer, "tcp", host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, fmt.Errorf("attack: cannot connect: %w", err)
	}
	return conn, nil
}

// tlsAttacks are against the handshake. They run with --tls only.
func tlsAttacks() []attack {
	hello := clientHello()
	raw := func(a *attacker) attacker { // the same server, by plain TCP
		return attacker{addr: strings.TrimPrefix(a.addr, tlsScheme), duration: a.duration}
	}
	again := func(name, help string, send func(a *attacker) bool) attack {
		return attack{name: name, help: "32 connections " + help + "; closed ones are replaced, for SECONDS", tlsOnly: true,
			prepare: func(a *attacker) (func() error, error) {
				return func() error {
					a.forDuration(32, func(int) bool { return send(a) })
					return nil
				}, nil
			}}
	}
	plain := func(blob []byte, wait time.Duration) func(a *attacker) bool {
		return func(a *attacker) bool {
			r := raw(a)
			ok := r.sendAndClose(blob, wait)
			a.opened.Add(r.opened.Load())
			a.bytes.Add(r.bytes.Load())
			return ok
		}
	}
	return []attack{
		again("tls-handshakes", "make a handshake and close", func(a *attacker) bool { return a.sendAndClose(nil, time.Millisecond) }),
		again("tls-hellos", "send a ClientHello and close after 100 ms", plain(hello, 100*time.Millisecond)),
		again("tls-garbage", "send 4 KiB that are no TLS", plain(randomBytes("garbage", 4*kib), time.Second)),
		{name: "tls-half-hello", help: "4,000 connections send half of a ClientHello", files: 4500, tlsOnly: true,
			prepare: func(a *attacker) (func() error, error) {
				return func() error {
					err := inParallel(manyConns, func(int) error {
						conn, err := dial(strings.TrimPrefix(a.addr, tlsScheme))
						if err == nil {
							a.keep(conn)
							a.write(conn, hello[:len(hello)/2], 0)
						}
						return err
					})
					time.Sleep(a.hold)
					return err
				}, nil
			}},
	}
}

// clientHello returns the first bytes of a TLS client.
func clientHello() []byte {
	here, there := net.Pipe()
	defer here.Close()
	go func() { _ = tls.Client(there, &tls.Config{InsecureSkipVerify: true}).Handshake() }() // ends with here
	buf := make([]byte, 16*kib)
	n, _ := here.Read(buf) // it is written in one call
	return buf[:n]
}
