package listen

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup/api"
)

// The network of an IP address is its own: 0.0.0.0 is not [::]. But [::] is of both, unless another address has the port.
func TestTCPNetwork(t *testing.T) {
	for _, test := range []struct{ addresses, want string }{ // of the last address
		{"0.0.0.0:1", "tcp4"},
		{"[::ffff:127.0.0.1]:1", "tcp4"},
		{"[fe80::1%eth0]:1", "tcp6"},
		{"[::1]:1", "tcp6"},
		{"localhost:1", "tcp"},
		{"[::]:1", "tcp"},
		{"tls://[::]:1", "tcp"},
		{"0.0.0.0:2 [::1]:1 ipc:///x [::]:1", "tcp"},
		{"0.0.0.0:0 [::]:0", "tcp"},
		{"0.0.0.0:1 [::]:1", "tcp6"},
		{"[::ffff:0.0.0.0]:1 [::]:1", "tcp6"},
		{"tls://127.0.0.1:1 [::]:1", "tcp6"},
		{"localhost:1 [::]:1", "tcp6"},
	} {
		all := strings.Fields(test.addresses)
		_, last, err := api.SplitAddress(all[len(all)-1])
		require.NoError(t, err)
		host, port, err := net.SplitHostPort(last)
		require.NoError(t, err)
		require.Equal(t, test.want, tcpNetwork(host, port, all), test.addresses)
	}
}

// Peers of IPv4 have the same address for a socket of both families as for one of IPv4.
func TestUnmap(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp4", fmt.Sprint("127.0.0.1:", l.Addr().(*net.TCPAddr).Port))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.True(t, conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Is4In6(), "as package net has it")
	unmap(conn.RemoteAddr().(*net.TCPAddr))
	require.Equal(t, client.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort())
}

// Without IPv6 in the kernel [::] is of IPv4 alone, with a line in the log. An address of IPv6 cannot be bound.
func TestWithoutIPv6(t *testing.T) {
	var log logtest.Buffer
	b := Binder{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	b.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		if strings.HasPrefix(address, "[") {
			return nil, &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", unix.EAFNOSUPPORT)}
		}
		return new(net.ListenConfig).Listen(ctx, network, address)
	}
	l, err := b.bind(t.Context(), "tcp://[::]:0", nil)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	require.True(t, strings.HasPrefix(l.Address, "tcp://0.0.0.0:"), l.Address)
	require.Contains(t, log.String(), `level=WARN msg="the system has no IPv6: IPv4 alone is served" listen=tcp://[::]:0`)
	conn, err := net.Dial("tcp4", strings.Replace(strings.TrimPrefix(l.Address, "tcp://"), "0.0.0.0", "127.0.0.1", 1))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = b.bind(t.Context(), "tcp://[::1]:0", nil)
	require.ErrorIs(t, err, unix.EAFNOSUPPORT)
}
