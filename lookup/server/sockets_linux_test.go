package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/lookuptest"
)

// TestSocketOptions looks at the sockets of the event loops.
func TestSocketOptions(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	raw, err := server.acceptor.listeners[0].SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		protocol, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		require.NoError(t, err)
		require.Equal(t, unix.IPPROTO_TCP, protocol, "not MPTCP")
	}))
	server.conns.mu.Lock()
	defer server.conns.mu.Unlock()
	require.Len(t, server.conns.all, 1)
	for c := range server.conns.all {
		for _, o := range []struct{ level, option, want int }{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
		} {
			got, err := unix.GetsockoptInt(c.wire.Fd(), o.level, o.option)
			require.NoError(t, err)
			require.Equal(t, o.want, got, "option %d", o.option)
		}
		flags, err := unix.FcntlInt(uintptr(c.wire.Fd()), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC)
		flags, err = unix.FcntlInt(uintptr(c.wire.Fd()), unix.F_GETFL, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.O_NONBLOCK)
	}
}
