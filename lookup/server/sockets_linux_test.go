package server

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// TestSocketOptions looks at the sockets of the event loops.
func TestSocketOptions(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	raw, err := server.acceptor.listeners[0].netListener.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		protocol, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		require.NoError(t, err)
		require.Equal(t, unix.IPPROTO_TCP, protocol, "not MPTCP")
	}))
	server.mu.Lock()
	defer server.mu.Unlock()
	require.Len(t, server.sessions, 1)
	for _, c := range server.sessions {
		for _, o := range []struct{ level, option, want int }{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
		} {
			got, err := unix.GetsockoptInt(c.Fd(), o.level, o.option)
			require.NoError(t, err)
			require.Equal(t, o.want, got, "option %d", o.option)
		}
		flags, err := unix.FcntlInt(uintptr(c.Fd()), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC)
		flags, err = unix.FcntlInt(uintptr(c.Fd()), unix.F_GETFL, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.O_NONBLOCK)
	}
}

// A thousand lookups of 4 MiB that stop half-way take at most 64 MiB.
func TestThousandHalfLookups(t *testing.T) {
	measurable(t)
	requireFiles(t, 3_000)
	server := startChild(t, childConfig{Listen: []string{"tcp://127.0.0.1:0"}, Limits: Limits{MessageTimeout: time.Hour}})
	c := dialChild(t, server)
	keys := lookuptest.Chain("a", 131072, 32)
	require.NoError(t, c.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	hit, err := c.Lookup(context.Background(), 131072*16, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.EqualValues(t, 131072*16, hit.Tokens)
	msg := append(netproto.AppendLookup(nil, nil, 131072*16, 32, len(keys)), keys...)
	half := len(msg) / 2
	before := server.memory(t, "VmRSS")
	crowd := dialCrowd(t, server.addr, 1000, func(conn net.Conn) error {
		if _, err := conn.Write(msg[:half]); err != nil {
			return err
		}
		for { // until the server's side has it all
			n, err := unacked(conn)
			if err != nil || n == 0 {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	pingClient(t, c)
	grown := server.memory(t, "VmHWM") - before
	t.Logf("1000 half lookups take %.1f MiB", float64(grown)/mib)
	require.LessOrEqual(t, grown, 64*mib)
	for _, conn := range crowd.conns[:3] { // they are well
		_, err := conn.Write(msg[half:])
		require.NoError(t, err)
		reply := make([]byte, 6)
		_, err = io.ReadFull(conn, reply)
		require.NoError(t, err)
		require.Equal(t, netproto.AppendHit(nil, nil, 131072*16), reply)
	}
	crowd.close()
	lookuptest.Eventually(t, "all gone", func() bool { return statOf(t, c).Connections == 1 })
	server.ends(t)
}

// unacked returns how many bytes the peer's kernel has not acknowledged.
func unacked(conn net.Conn) (n int, err error) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); failed != nil {
		return 0, failed
	}
	return n, err
}
