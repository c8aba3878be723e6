//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/netproto"
)

// manyConns is a number of connections just below the server's bound.
const manyConns = 4000

// memoryAttacks make the server hold memory for connections.
func memoryAttacks() []attack {
	ping := func(size int) []byte { return request(netproto.TagPing, randomBytes("unread", size)) }
	rows := []attack{
		{name: "unread-1500", help: "1,500 connections send 18 pings of 60,000 bytes each and read nothing", files: 2000, prepare: readNothing(1500, ping(60000), 18)},
		{name: "unread-tiny-1500", help: "1,500 connections send 100,000 pings of 10 bytes each and read nothing", files: 2000, prepare: readNothing(1500, ping(10), 100000)},
		{name: "unread-4000", help: "4,000 connections send 18 pings of 60,000 bytes each and read nothing", files: 4500, prepare: readNothing(manyConns, ping(60000), 18)},
	}
	const hashes = 8192
	cut := func(request []byte, by int) []byte { return request[:len(request)-by] }
	for _, u := range []struct {
		name, help string
		request    func() []byte
	}{
		{"lookup", "a lookup of 8,192 hashes, less the last hash", func() []byte { return cut(lookup(randomBytes("u", 32*hashes), 32), 32) }},
		{"explain", "an explain of 8,192 hashes, less the last hash", func() []byte { return cut(explain(randomBytes("u", 32*hashes), 32), 32) }},
		{"anchors", "a request by 4,096 anchors with digests, of hashes of 64 bytes, less the last hash", func() []byte {
			return cut(anchors(randomBytes("u", 64*hashes), 64, netproto.MaxAnchors, true), 64)
		}},
		{"half", "a lookup of 4 MiB, of which 2 MiB are sent", func() []byte { return cut(lookup(randomBytes("u", 4*mib), 32), 2*mib) }},
		{"ping", "a ping of 64 KiB, less the last byte", func() []byte { return cut(request(netproto.TagPing, randomBytes("u", netproto.MaxPing)), 1) }},
		{"pool", "a description of a pool of 64 KiB, less the last byte", func() []byte { return cut(request(netproto.TagPool, randomBytes("u", netproto.MaxDescription)), 1) }},
		{"holders", "a query of holders of 8 KiB, less the last byte", func() []byte {
			return cut(request(netproto.TagHolders, randomBytes("u", netproto.MaxHoldersQuery)), 1)
		}},
		{"store", "a store of 8,192 keys, less the last key", func() []byte { return cut(store(netproto.GroupRank{}, randomBytes("u", 32*hashes), 32), 32) }},
	} {
		rows = append(rows, attack{name: "unfinished-" + u.name, help: "4,000 connections each send " + u.help, files: 4500, prepare: sendUnfinished(u.request)})
	}
	return rows
}

// readNothing opens n connections that send a request so many times and read no reply.
func readNothing(n int, request []byte, times int) func(a *attacker) (func() error, error) {
	return func(a *attacker) (func() error, error) {
		blob, _ := repeat(request, times*len(request))
		return func() error {
			err := inParallel(n, func(int) error {
				conn, err := dialSmallWindow(a.addr)
				if err != nil {
					return err
				}
				a.keep(conn)
				_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the server may stop reading
				a.write(conn, blob, times)
				return nil
			})
			time.Sleep(a.hold)
			return err
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

// keep keeps a connection open up to the end of the process.
func (a *attacker) keep(conn net.Conn) {
	a.opened.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, conn)
}

// sendUnfinished opens connections that send a part of a request.
func sendUnfinished(part func() []byte) func(a *attacker) (func() error, error) {
	return func(a *attacker) (func() error, error) {
		blob := part()
		return func() error {
			err := inParallel(manyConns, func(int) error {
				conn, err := dial(a.addr)
				if err != nil {
					return err
				}
				a.keep(conn)
				_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the server may stop reading
				a.write(conn, blob, 0)
				return nil
			})
			time.Sleep(a.hold)
			return err
		}, nil
	}
}

// metricsAttacks are silent connections to the metrics port.
func metricsAttacks() []attack {
	var rows []attack
	for _, n := range []int{32, 1000} {
		rows = append(rows, attack{
			name: fmt.Sprint("metrics-", n), help: fmt.Sprintf("%d silent connections to the metrics port, for SECONDS, while /healthz is asked", n),
			spec: serverSpec{metrics: true}, files: uint64(n) + 500,
			prepare: func(a *attacker) (func() error, error) {
				return func() error { return a.occupyMetrics(n) }, nil
			},
		})
	}
	return rows
}

// occupyMetrics opens silent connections to the metrics port and asks /healthz meanwhile.
func (a *attacker) occupyMetrics(n int) error {
	err := inParallel(n, func(int) error {
		conn, err := dial(a.metrics)
		if err == nil {
			a.keep(conn)
		}
		return err
	})
	answered, failed := 0, 0
	var longest time.Duration
	for end := time.Now().Add(a.duration); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		begin := time.Now()
		if a.healthy() {
			answered++
		} else {
			failed++
		}
		longest = max(longest, time.Since(begin))
	}
	a.say("/healthz: %d of %d answered, the longest took %v", answered, answered+failed, longest.Round(time.Millisecond))
	return err
}

// healthy asks /healthz on a new connection.
func (a *attacker) healthy() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.metrics+"/healthz", nil)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// connAttacks are floods of connections, and bytes that are no requests.
func connAttacks() []attack {
	endless, _ := repeat([]byte{1, 0}, 64*kib)
	garbage := append([]byte("GET / HTTP/1.1\r\n"), randomBytes("garbage", 4*kib)...)
	huge := append([]byte{2}, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	huge = append(huge, 0xff)
	announced := append(netproto.AppendLookup(nil, nil, 60*mib/32*blockTokens, 32, 60*mib), make([]byte, 64*kib)...)
	again := func(name, help string, wait time.Duration, blob []byte) attack {
		return attack{name: name, help: "32 connections send " + help + "; closed ones are replaced, for SECONDS",
			prepare: func(a *attacker) (func() error, error) {
				return func() error {
					a.forDuration(32, func(int) bool { return a.sendAndClose(blob, wait) })
					return nil
				}, nil
			}}
	}
	return []attack{
		again("more-frames", "64 KiB of empty frames with MORE", time.Second, endless),
		again("garbage", "4 KiB that begin with no dialect", time.Second, garbage),
		again("huge-frame", "a frame that announces 2^63 - 1 bytes", time.Second, huge),
		again("huge-lookup", "64 KiB of a lookup of 60 MiB and close after 100 ms", 100*time.Millisecond, announced),
		{name: "reconnect", help: "10,000 connections are opened and closed",
			prepare: func(a *attacker) (func() error, error) {
				return func() error {
					return inParallel(10000, func(int) error {
						conn, err := dial(a.addr)
						if err == nil {
							a.opened.Add(1)
							conn.Close()
						}
						return err
					})
				}, nil
			}},
		{name: "slow", help: "1,000 connections send a byte of a lookup every 100 ms, for SECONDS", files: 1500,
			prepare: func(a *attacker) (func() error, error) {
				conns, err := a.open(1000)
				blob := lookup(randomBytes("slow", 64*32), 32)
				return func() error { return a.sendSlowly(conns, blob) }, err
			}},
		{name: "flood", help: "6,000 connections stay open, and 32 more come again and again, for SECONDS", files: 6500,
			prepare: func(a *attacker) (func() error, error) {
				return func() error { return a.flood(6000) }, nil
			}},
	}
}

// sendAndClose opens a connection, sends blob, waits until the server closes it or wait is over,
// and closes it. It returns false if it cannot connect.
func (a *attacker) sendAndClose(blob []byte, wait time.Duration) bool {
	conn, err := dial(a.addr)
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
func (a *attacker) sendSlowly(conns []net.Conn, blob []byte) error {
	end := time.Now().Add(a.duration)
	for i := 0; time.Now().Before(end); i = (i + 1) % len(blob) {
		next := time.Now().Add(100 * time.Millisecond)
		for _, conn := range conns {
			a.write(conn, blob[i:i+1], 0)
		}
		time.Sleep(time.Until(next))
	}
	return nil
}

// flood opens n connections, which are more than the server accepts, and others meanwhile that
// are closed as soon as the server does.
func (a *attacker) flood(n int) error {
	end := time.Now().Add(a.duration)
	var refused atomic.Int64
	err := inParallel(n, func(int) error {
		if conn, _ := dial(a.addr); conn != nil {
			a.keep(conn)
		} else { // refused by the system, as the server's queue is full
			refused.Add(1)
		}
		return nil
	})
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() {
			for time.Now().Before(end) {
				if !a.sendAndClose([]byte{0}, time.Second) {
					refused.Add(1)
				}
			}
		})
	}
	running.Wait()
	a.say("%d connections refused by the system", refused.Load())
	return err
}
