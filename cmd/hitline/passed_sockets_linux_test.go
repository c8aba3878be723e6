package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/storetest"
)

// pingMessage and pingReply are what a peer sends and gets.
const pingMessage, pingReply = "\x01\x04ping\x00\x00", "\x01\x01\x01\x00\x00"

// startPassing starts serve with sockets that the test holds, as systemd passes them. env may set other variables.
func startPassing(t *testing.T, yaml string, sockets []*os.File, env ...string) (cmd *exec.Cmd, log *bufio.Scanner) {
	t.Helper()
	// Only the process itself knows its number before it begins.
	cmd = programIn(t, `export LISTEN_PID="${LISTEN_PID-$$}"`, "serve", "--config", configFile(t, yaml+"log: {format: json}\n"))
	cmd.Env = append(append(cmd.Env, fmt.Sprint("LISTEN_FDS=", len(sockets))), env...)
	cmd.ExtraFiles = sockets
	reader, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(reader)
}

// holdSocket listens, and returns the descriptor that is passed.
func holdSocket(t *testing.T, network, address string) (*os.File, string) {
	t.Helper()
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	file, err := l.(interface{ File() (*os.File, error) }).File()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Cleanup(func() { _ = file.Close() })
	return file, l.Addr().String()
}

// sendPing connects and sends a ping, whose reply may take until a server is there.
func sendPing(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, pingMessage)
	require.NoError(t, err)
	return conn
}

func wantReply(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(storetest.Timeout)))
	reply := make([]byte, len(pingReply))
	_, err := io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, pingReply, string(reply))
}

// A parent that holds the sockets replaces the program. Who connects meanwhile, also while the old one drains, waits for the
// new one. The file of a unix socket stays.
func TestPassedSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	unixSocket, _ := holdSocket(t, "unix", path)
	tcp, address := holdSocket(t, "tcp", "127.0.0.1:0")
	metrics, metricsAddress := holdSocket(t, "tcp", "127.0.0.1:0")
	router, routerAddress := holdSocket(t, "tcp", "127.0.0.1:0")
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	yaml := fmt.Sprintf("listen: ['ipc://%s', 'localhost:%s']\nmetrics: '%s'\nrouter: {listen: '%s', models: [{name: m, block_size: 16}]}\n",
		path, port, metricsAddress, routerAddress)
	sockets := []*os.File{metrics, tcp, unixSocket, router} // in any order
	before, err := os.Lstat(path)
	require.NoError(t, err)

	old, log := startPassing(t, yaml, sockets)
	awaitLog(t, log, "ready")
	wantReply(t, sendPing(t, "tcp", address))
	wantReply(t, sendPing(t, "unix", path))
	for _, url := range []string{metricsAddress + "/readyz", routerAddress + "/health"} {
		response, err := http.Get("http://" + url)
		require.NoError(t, err)
		_ = response.Body.Close()
		assert.Equal(t, http.StatusOK, response.StatusCode, url)
	}
	busy, idle := beginPing(t, address), sendPing(t, "tcp", address)
	wantReply(t, idle)
	require.NoError(t, old.Process.Signal(syscall.SIGTERM))
	awaitLog(t, log, "stopping")
	_, err = io.Copy(io.Discard, idle)
	require.NoError(t, err, "no connection is closed before nothing is accepted any more")
	waiting := []net.Conn{sendPing(t, "tcp", address), sendPing(t, "unix", path)}
	_, err = io.WriteString(busy, "ng\x00\x00")
	require.NoError(t, err)
	wantReply(t, busy)
	awaitLog(t, log, "stopped")
	require.NoError(t, old.Wait())
	waiting = append(waiting, sendPing(t, "tcp", address), sendPing(t, "unix", path))

	next, log := startPassing(t, yaml, sockets)
	awaitLog(t, log, "ready")
	for _, conn := range waiting {
		wantReply(t, conn)
	}
	require.NoError(t, next.Process.Signal(syscall.SIGTERM))
	require.NoError(t, next.Wait())
	after, err := os.Lstat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "it belongs to who has opened it")
}

// A socket that belongs to no field is refused, and so is what does not listen. Those of another process are not looked at.
func TestPassedSocketsRefused(t *testing.T) {
	tcp, address := holdSocket(t, "tcp", "127.0.0.1:0")
	all, allAddress := holdSocket(t, "tcp", "[::]:0")
	_, port, err := net.SplitHostPort(allAddress)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	unixSocket, _ := holdSocket(t, "unix", path)
	datagram, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	silent, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	files := []*os.File{os.NewFile(uintptr(datagram), "datagram"), os.NewFile(uintptr(silent), "silent")}
	for _, file := range files {
		defer func() { _ = file.Close() }()
	}
	const listen = "listen: ['127.0.0.1:0', 'ipc:///no/such/socket']\n"
	const cure = ", to which it is bound: configure it, or remove it from the socket unit"
	for _, test := range []struct {
		yaml   string
		socket *os.File
		env    string
		want   string
	}{
		{listen, tcp, "A=", "socket 1 of LISTEN_FDS: no address of listen, metrics or router.listen is " + address + cure},
		{listen, unixSocket, "A=", "no address of listen, metrics or router.listen is " + path + cure},
		{"listen: ['0.0.0.0:" + port + "']\n", all, "A=", "is [::]:" + port + cure},
		{"listen: ['127.0.0.1:" + port + "']\n", all, "A=", "is [::]:" + port + cure},
		{listen, files[0], "A=", "socket 1 of LISTEN_FDS: it does not listen; in a socket unit use ListenStream, and Accept=no"},
		{listen, files[1], "A=", "it does not listen"},
		{listen, os.Stdin, "A=", "it is no socket: "},
		{listen, tcp, "LISTEN_FDS=two", `LISTEN_FDS is "two", and not a number from 0 to 1023`},
		{"listen: ['127.0.0.1:0']\n", tcp, "LISTEN_PID=1", ""},
	} {
		cmd, log := startPassing(t, test.yaml, []*os.File{test.socket}, test.env)
		if test.want == "" {
			awaitLog(t, log, "ready")
			continue
		}
		var text strings.Builder
		for log.Scan() {
			text.WriteString(log.Text())
		}
		assert.Contains(t, text.String(), test.want)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		assert.Equal(t, exitUsage, exit.ExitCode(), test.want)
	}
}

// systemd's own program passes sockets: it starts the server when the first client connects.
func TestSystemdSocketActivate(t *testing.T) {
	program, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("there is no systemd-socket-activate")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	address := storetest.FreeAddr(t)
	cmd := exec.Command(program, "-l", address, "-E", asProgram+"=1", self, "serve", "--config", configFile(t, "listen: ['"+address+"']\n"))
	cmd.Env = append(os.Environ(), asProgram+"=1")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which has become the server
		_ = cmd.Wait()
	})
	storetest.Eventually(t, "it listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	wantReply(t, sendPing(t, "tcp", address))
}
