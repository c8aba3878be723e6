package server

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
)

// TestZMTPPeers runs testdata/zmtp_peer.py: clients over real libzmqs, the one of pyzmq
// and, where it is installed, the system's own.
func TestZMTPPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python many times")
	}
	pythons := map[string]string{"of PyPI": storetest.PyzmqPython(t)}
	const system = "/usr/bin/python3"
	if exec.Command(system, "-c", "import zmq").Run() == nil {
		pythons["system"] = system
	}
	for name, python := range pythons {
		t.Run(name, func(t *testing.T) {
			version, err := exec.Command(python, "-c", "import zmq; print(zmq.zmq_version())").Output()
			require.NoError(t, err)
			t.Logf("libzmq %s", version)
			zmtpPeers(t, python)
		})
	}
}

func zmtpPeers(t *testing.T, python string) {
	server := startServer(t, blocks16, Limits{})
	t.Run("reset", func(t *testing.T) { runPeer(t, python, server, "reset") }) // empties the pool under the others
	t.Run("restart", func(t *testing.T) { restartUnderPeer(t, python) })
	t.Run("PLAIN", func(t *testing.T) { plainPeers(t, python) })
	t.Run("ipc", func(t *testing.T) {
		server := startServerOn(t, "ipc://"+filepath.Join(t.TempDir(), "lookup"))
		for _, check := range []string{"sizes", "two_clients", "dealer", "threads"} {
			runPeer(t, python, server, check)
		}
	})
	t.Run("with each other", func(t *testing.T) {
		for _, check := range []string{
			"sizes", "refusals", "two_clients", "threads", "correlate", "dealer", "no_delimiter", "heartbeats", "many", "pub", "sub", "plain",
		} {
			t.Run(check, func(t *testing.T) {
				t.Parallel()
				runPeer(t, python, server, check)
			})
		}
	})
	closed := statOf(t, dialTest(t, server)).Closed
	delete(closed, "peer")
	require.Equal(t, map[string]int64{"zmtp_socket_type": 2}, closed, "nobody else was turned away, and these did not come back")
}

// peerCommand prepares a check with tokens, which is killed if it takes far too long.
func peerCommand(t *testing.T, python string, s *Server, check string, tokens ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 3*lookuptest.Patience)
	t.Cleanup(cancel)
	args := append([]string{filepath.Join("testdata", "zmtp_peer.py"), s.Addrs()[0], check}, tokens...)
	return exec.CommandContext(ctx, python, args...)
}

func runPeer(t *testing.T, python string, s *Server, check string, tokens ...string) {
	out, err := peerCommand(t, python, s, check, tokens...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// runAsking runs a check that asks for something with a line, and goes on when it is done.
func runAsking(t *testing.T, cmd *exec.Cmd, do map[string]func()) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if f := do[lines.Text()]; assert.NotNil(t, f, "asked for %q", lines.Text()) {
			f()
			_, err = io.WriteString(in, lines.Text()+" done\n")
			assert.NoError(t, err)
		}
	}
	require.NoError(t, cmd.Wait(), "%s", &stderr)
}

// restartUnderPeer starts the server anew on the same port when the check asks
// for it.
func restartUnderPeer(t *testing.T, python string) {
	server := startServerOn(t, "tcp://"+storetest.FreeAddr(t))
	runAsking(t, peerCommand(t, python, server, "restart"), map[string]func(){"restart": func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		startServerOn(t, server.Addrs()[0])
	}})
}

// plainPeers runs the checks of the PLAIN mechanism.
func plainPeers(t *testing.T, python string) {
	server := startWithToken(t, Config{})
	set := func(credentials ...access.Credential) func() {
		return func() {
			require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Ping, credentials...)))
		}
	}
	old, next := tokenOf("engines", access.All), tokenOf("next", access.All)
	for _, check := range []string{"plain_token", "plain_wrong", "plain_anonymous"} {
		runPeer(t, python, server, check, engineToken)
	}
	runAsking(t, peerCommand(t, python, server, "plain_rotation", engineToken, "token of next"), map[string]func(){
		"add": set(old, next), "remove": set(next),
	})
	st := statOfServer(t, server)
	require.EqualValues(t, st.AuthFailures, st.Closed["zmtp_credentials"])
	require.EqualValues(t, 2, st.Closed["credential_revoked"])
	require.Equal(t, map[string]int64{"lookup": 1}, st.NotAllowed)
}

// startServerOn starts a server at an address, perhaps one that was in use a
// moment ago.
func startServerOn(t *testing.T, addr string) *Server {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: addr}}, Loops: 2})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	require.NoError(t, server.Start(ctx))
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	return server
}
