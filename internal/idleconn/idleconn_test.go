package idleconn

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnded(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		for name, end := range map[string]func(peer net.Conn){
			"closed": func(peer net.Conn) { peer.Close() },
			"sends":  func(peer net.Conn) { _, _ = peer.Write([]byte{0}) },
			"reset": func(peer net.Conn) {
				if tcp, ok := peer.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				peer.Close()
			},
		} {
			l, err := net.Listen(network, address)
			require.NoError(t, err)
			conn, err := net.Dial(network, l.Addr().String())
			require.NoError(t, err)
			peer, err := l.Accept()
			require.NoError(t, err)
			idle := conn.(syscall.Conn)
			require.False(t, Ended(idle), name)
			require.NoError(t, conn.SetDeadline(time.Unix(1, 0)))
			require.False(t, Ended(idle), "its deadline has passed")
			end(peer)
			require.Eventually(t, func() bool { return Ended(idle) }, 20*time.Second, time.Millisecond, name)
			conn.Close()
			require.True(t, Ended(idle), "closed here")
			peer.Close()
			l.Close()
		}
	}
}
