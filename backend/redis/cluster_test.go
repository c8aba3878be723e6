package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// TestUnknownEndpoints has a cluster whose nodes do not say their hosts: CLUSTER SLOTS has null
// for them, and MOVED nothing.
func TestUnknownEndpoints(t *testing.T) {
	c := storetest.StartCluster(t, storetest.RedisBinary(t), "--cluster-preferred-endpoint-type", "unknown-endpoint")
	t.Cleanup(c.Stop)
	checkAllCalls(t, testBackend(t, Config{URL: c.URL()}))
}

// TestClusterWithoutSlots has a server of a cluster that nobody has set up. Nothing succeeds for want of servers.
func TestClusterWithoutSlots(t *testing.T) {
	b := testBackend(t, Config{URL: "redis-cluster://" + storetest.StartRedis(t, "--cluster-enabled", "yes").Addr})
	_, infoErr := b.Info(testContext(t))
	_, sampleErr := b.Sample(testContext(t))
	for _, err := range []error{infoErr, sampleErr, b.Reset(testContext(t))} {
		require.ErrorIs(t, err, backend.ErrMismatch)
		require.ErrorContains(t, err, "is the cluster set up?")
	}
}

// TestHostOfAsked has a cluster of two nodes on 127.0.0.2 that name no host in CLUSTER SLOTS or
// in MOVED. It is the one that was asked, and not this machine.
func TestHostOfAsked(t *testing.T) {
	for name, host := range map[string]string{"null": "$-1\r\n", "null of RESP 3": "_\r\n", "empty": "$0\r\n\r\n"} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, moved %v", name, moved), func(t *testing.T) {
				var stored [2]atomic.Int64
				var ports [2]string
				listeners := [2]net.Listener{}
				for i := range listeners {
					l, err := net.Listen("tcp", "127.0.0.2:0")
					require.NoError(t, err)
					t.Cleanup(func() { _ = l.Close() })
					listeners[i] = l
					_, ports[i], _ = net.SplitHostPort(l.Addr().String())
				}
				for i, l := range listeners {
					go serveListener(l, func(conn net.Conn) {
						for in := bufio.NewReader(conn); ; {
							words, err := readCommand(in)
							if err != nil {
								return
							}
							reply := noCommand
							switch command := strings.ToLower(words[0]); {
							case command == "ping":
								reply = "+PONG\r\n"
							case command == "cluster":
								owner := ports[1]
								if moved {
									owner = ports[0]
								}
								reply = "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" + host + ":" + owner + "\r\n$1\r\na\r\n*0\r\n"
							case i == 0:
								reply = "-MOVED 1 :" + ports[1] + "\r\n"
							case command == "set":
								stored[i].Add(1)
								reply = "+OK\r\n"
							case command == "exists":
								reply = ":1\r\n"
							}
							if _, err := io.WriteString(conn, reply); err != nil {
								return
							}
						}
					})
				}
				// The host that was asked is not that of the URL's first address, at which nothing is.
				b := testBackend(t, Config{URL: "redis-cluster://127.0.0.3:1?addr=" + listeners[0].Addr().String()})
				require.NoError(t, b.Store(testContext(t), blocks("m", 3)))
				require.EqualValues(t, 3, stored[1].Load())
				answers, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 2)), false)
				require.NoError(t, err)
				require.Equal(t, []int{1, 1}, answers)
			})
		}
	}
}

// TestNullReplies has a server reply null to a command that has no such reply. A call that has
// not reached the store for it must not report an absent key or a change.
func TestNullReplies(t *testing.T) {
	for _, c := range []struct{ scheme, command string }{
		{"redis-cluster://", "cluster"}, {"redis://:secret@", "auth"}, {"redis-cluster://:secret@", "auth"}, {"redis://", "select"},
		{"redis://", "exists"}, {"redis-cluster://", "exists"}, {"redis://", "unlink"},
		{"redis://", "scan"}, {"redis://", "pexpire"},
	} {
		for _, null := range []string{"$-1\r\n", "*-1\r\n"} {
			t.Run(c.scheme+c.command+strings.TrimSpace(null), func(t *testing.T) {
				var addr string
				addr = scriptedServer(t, func() func(string) string {
					return func(command string) string {
						switch command {
						case c.command:
							return null
						case "cluster":
							host, port, _ := net.SplitHostPort(addr)
							return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
						case "ping":
							return "+PONG\r\n"
						case "set":
							return "$-1\r\n"
						}
						return noCommand
					}
				})
				cfg := Config{URL: c.scheme + addr, TTL: testTimeout}
				if c.command == "select" {
					cfg.URL += "/3"
				}
				b := testBackend(t, cfg)
				_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
				for _, err := range []error{err, b.Store(testContext(t), blocks("m", 1)), b.Evict(testContext(t), blocks("m", 1)), b.Reset(testContext(t))} {
					require.Error(t, err)
					require.NotContains(t, err.Error(), "redis: nil")
				}
			})
		}
	}
}
