package listen

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// share returns a listener and another one of the same socket, as a process has it that was passed it.
func share(t *testing.T, network, address string) (ours, theirs Listener) {
	t.Helper()
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	ours = l.(Listener)
	file, err := l.(interface{ File() (*os.File, error) }).File()
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	other, err := net.FileListener(file)
	require.NoError(t, err)
	return ours, other.(Listener)
}

// gated accepts when its gate is open.
type gated struct {
	Listener
	gate chan struct{}
}

func (g gated) Accept() (net.Conn, error) {
	<-g.gate
	return g.Listener.Accept()
}

// refusing is a Handler that no connection may come to.
type refusing struct{ *testing.T }

func (r refusing) Accept(int, net.Conn)               { r.Error("a connection was accepted") }
func (r refusing) Fail(what, address string, _ error) { r.Error(what, address) }

// Who waits in the backlog of a socket that was given stays there. The file of a unix socket stays, too.
func TestGivenSocketIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ours, theirs := share(t, "unix", path)
	gate := make(chan struct{})
	address := "ipc://" + path
	b := Binder{Logger: slog.New(slog.DiscardHandler), Given: map[string]Listener{address: gated{theirs, gate}}}
	sockets, err := b.BindAll(t.Context(), []string{address})
	require.NoError(t, err)
	require.Equal(t, address, sockets[0].Address)
	require.True(t, sockets[0].Local)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	a := New(sockets, refusing{t})
	a.Start()
	a.Stop()
	close(gate)
	a.Wait()
	require.FileExists(t, path)
	accepted, err := ours.Accept()
	require.NoError(t, err)
	require.NoError(t, accepted.Close())
}

// What peers of a given socket may do follows the address that it has, and not the configured text.
func TestGivenSocketIsLocal(t *testing.T) {
	for bound, local := range map[string]bool{"127.0.0.1:0": true, "0.0.0.0:0": false, "[::]:0": false, "[::1]:0": true} {
		_, theirs := share(t, "tcp", bound)
		b := Binder{Given: map[string]Listener{"tls://host:1": theirs}}
		sockets, err := b.BindAll(t.Context(), []string{"tls://host:1"})
		require.NoError(t, err)
		require.Equal(t, local, sockets[0].Local, bound)
		_, port, err := net.SplitHostPort(theirs.Addr().String())
		require.NoError(t, err)
		require.Equal(t, "tls://host:"+port, sockets[0].Address)
		CloseAll(sockets)
	}
}
