//go:build linux && hitline_attack

package attack

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// manyConns is a number of connections just below the server's bound.
const manyConns = 4000

// fill prepares an attack by n connections that send blob, in which there are so many requests, read
// nothing, and stay open for a while.
func fill(n, requests int, blob func() []byte) prepare {
	return func(a *attacker) (func(), error) {
		b := blob()
		return func() {
			a.fail(inParallel(n, func(int) error {
				conn, err := dialSmallWindow(a.addr)
				if err != nil {
					return err
				}
				a.keep(conn)
				_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the server may stop reading
				a.write(conn, b, requests)
				return nil
			}))
			time.Sleep(duration())
		}, nil
	}
}

// dialSmallWindow connects with a small receive buffer, so that replies stay at the server.
func dialSmallWindow(addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: startTimeout, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4*kib) })
		return errors.Join(err, failed)
	}}
	return dialWith(&dialer, addr)
}

// memoryRows make the server hold memory for connections.
func memoryRows() []row {
	pings := func(size, n int) func() []byte {
		return func() []byte {
			ping := request(netproto.TagPing, randomBytes("unread", size))
			blob, _ := repeat(ping, n*len(ping))
			return blob
		}
	}
	rows := []row{
		{name: "unread-1500", what: "1,500 connections send 18 pings of 60,000 bytes each and read nothing", files: 2000,
			prepare: fill(1500, 18, pings(60000, 18))},
		{name: "unread-tiny-1500", what: "1,500 connections send 100,000 pings of 10 bytes each and read nothing", files: 2000,
			prepare: fill(1500, 100000, pings(10, 100000))},
		{name: "unread-4000", what: "4,000 connections send 18 pings of 60,000 bytes each and read nothing", files: 4500,
			prepare: fill(manyConns, 18, pings(60000, 18))},
	}
	const hashes = 8192
	random := func(n int) []byte { return randomBytes("unfinished", n) }
	for _, u := range []struct {
		name, what string
		request    func() []byte
		cut        int // bytes that are not sent
	}{
		{"lookup", "a lookup of 8,192 hashes, less the last hash", func() []byte { return lookup(random(32*hashes), 32) }, 32},
		{"explain", "an explain of 8,192 hashes, less the last hash", func() []byte { return explain(random(32*hashes), 32) }, 32},
		{"half", "a lookup of 4 MiB, of which 2 MiB are sent", func() []byte { return lookup(random(4*mib), 32) }, 2 * mib},
		{"ping", "a ping of 64 KiB, less the last byte", func() []byte { return request(netproto.TagPing, random(netproto.MaxPing)) }, 1},
		{"pool", "a description of a pool of 64 KiB, less the last byte", func() []byte { return request(netproto.TagPool, random(netproto.MaxDescription)) }, 1},
		{"store", "a store of 8,192 keys, less the last key", func() []byte { return store(coordinator.GroupRank{}, random(32*hashes), 32) }, 32},
	} {
		part := func() []byte {
			b := u.request()
			return b[:len(b)-u.cut]
		}
		rows = append(rows, row{name: "unfinished-" + u.name, what: "4,000 connections each send " + u.what, files: 4500, prepare: fill(manyConns, 0, part)})
	}
	return rows
}

// metricsRows are silent connections to the metrics port.
func metricsRows() []row {
	var rows []row
	for _, n := range []int{32, 1000} {
		rows = append(rows, row{
			name: fmt.Sprint("metrics-", n), what: fmt.Sprintf("%d silent connections to the metrics port, while /healthz is asked", n),
			spec: serverSpec{metrics: true}, files: uint64(n) + 500,
			prepare: alone(func(a *attacker) { a.occupyMetrics(n) }),
		})
	}
	return rows
}

// occupyMetrics opens silent connections to the metrics port and asks /healthz meanwhile.
func (a *attacker) occupyMetrics(n int) {
	a.fail(inParallel(n, func(int) error {
		conn, err := dial(a.metrics)
		if err == nil {
			a.keep(conn)
		}
		return err
	}))
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answered, asked := 0, 0
	var longest time.Duration
	for end := time.Now().Add(duration()); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		begin := time.Now()
		resp, err := client.Get("http://" + a.metrics + "/healthz")
		if asked++; err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				answered++
			}
		}
		longest = max(longest, time.Since(begin))
	}
	a.note = fmt.Sprintf("/healthz: %d of %d answered, the longest took %v", answered, asked, longest.Round(time.Millisecond))
}

// again is a row of 32 connections that send blob; closed ones are replaced.
func again(name, what string, wait time.Duration, blob []byte) row {
	return row{name: name, what: "32 connections send " + what + "; closed ones are replaced", prepare: alone(func(a *attacker) {
		a.forDuration(32, func(int) bool { return a.sendAndClose(a.addr, blob, wait) })
	})}
}

// connRows are floods of connections, and bytes that are no requests.
func connRows() []row {
	endless, _ := repeat([]byte{1, 0}, 64*kib)
	garbage := append([]byte("GET / HTTP/1.1\r\n"), randomBytes("garbage", 4*kib)...)
	huge := []byte{2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	announced := append(netproto.AppendLookup(nil, nil, 60*mib/32*blockTokens, 32, 60*mib), make([]byte, 64*kib)...)
	return []row{
		again("more-frames", "64 KiB of empty frames with MORE", time.Second, endless),
		again("garbage", "4 KiB that begin with no dialect", time.Second, garbage),
		again("huge-frame", "a frame that announces 2^63 - 1 bytes", time.Second, huge),
		again("huge-lookup", "64 KiB of a lookup of 60 MiB and close after 100 ms", 100*time.Millisecond, announced),
		{name: "reconnect", what: "10,000 connections are opened and closed", prepare: alone(func(a *attacker) {
			a.fail(inParallel(10000, func(int) error {
				conn, err := dial(a.addr)
				if err == nil {
					a.opened.Add(1)
					conn.Close()
				}
				return err
			}))
		})},
		{name: "slow", what: "1,000 connections send a byte of a lookup every 100 ms", files: 1500, prepare: onConns(1000, sendSlowly)},
		{name: "flood", what: "6,000 connections stay open, and 32 more come again and again", files: 6500,
			prepare: alone(func(a *attacker) { a.flood(6000) })},
	}
}

// sendAndClose opens a connection, sends blob, waits until the server closes it or wait is over,
// and closes it. It returns false if it cannot connect.
func (a *attacker) sendAndClose(addr string, blob []byte, wait time.Duration) bool {
	conn, err := dial(addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	a.opened.Add(1)
	_ = conn.SetDeadline(time.Now().Add(wait)) // it may be lost
	a.write(conn, blob, 0)
	_, _ = io.Copy(io.Discard, conn) // until it is closed
	return true
}

// sendSlowly sends a byte at a time.
func sendSlowly(a *attacker, conns []net.Conn) {
	blob := lookup(randomBytes("slow", 64*32), 32)
	end := time.Now().Add(duration())
	for i := 0; time.Now().Before(end); i = (i + 1) % len(blob) {
		next := time.Now().Add(100 * time.Millisecond)
		for _, conn := range conns {
			a.write(conn, blob[i:i+1], 0)
		}
		time.Sleep(time.Until(next))
	}
}

// flood opens n connections, which are more than the server accepts, and others meanwhile that
// are closed as soon as the server does. The system refuses some, as the server's queue is full.
func (a *attacker) flood(n int) {
	var refused atomic.Int64
	_ = inParallel(n, func(int) error {
		if conn, _ := dial(a.addr); conn != nil {
			a.keep(conn)
		} else {
			refused.Add(1)
		}
		return nil
	})
	a.forDuration(parallel, func(int) bool {
		if !a.sendAndClose(a.addr, []byte{0}, time.Second) {
			refused.Add(1)
		}
		return true
	})
	a.note = fmt.Sprintf("%d connections refused by the system", refused.Load())
}

// tlsRows are against the handshake. They connect by plain TCP to the port that has TLS.
func tlsRows() []row {
	hello := clientHello()
	tcp := func(a *attacker) string { return strings.TrimPrefix(a.addr, tlsScheme) }
	plain := func(name, what string, wait time.Duration, blob []byte) row {
		r := again(name, what, wait, blob)
		r.prepare = alone(func(a *attacker) {
			a.forDuration(32, func(int) bool { return a.sendAndClose(tcp(a), blob, wait) })
		})
		return r
	}
	rows := []row{
		again("tls-handshakes", "nothing after a handshake, and close", time.Millisecond, nil),
		plain("tls-hellos", "a ClientHello and close after 100 ms", 100*time.Millisecond, hello),
		plain("tls-garbage", "4 KiB that are no TLS", time.Second, randomBytes("garbage", 4*kib)),
		{name: "tls-half-hello", what: "4,000 connections send half of a ClientHello", files: 4500,
			prepare: func(a *attacker) (func(), error) {
				a.addr = tcp(a)
				return fill(manyConns, 0, func() []byte { return hello[:len(hello)/2] })(a)
			}},
	}
	for i := range rows {
		rows[i].tls = true
	}
	return rows
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
