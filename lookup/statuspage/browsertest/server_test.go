package browsertest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// program returns the path of hitline, which the first test that asks for it builds.
var program = sync.OnceValues(buildProgram)

// removeProgram removes what buildProgram has built.
var removeProgram = func() {}

func buildProgram() (string, error) {
	dir, err := os.MkdirTemp("", "hitline-browsertest")
	if err != nil {
		return "", err
	}
	removeProgram = func() { _ = os.RemoveAll(dir) }
	path := filepath.Join(dir, "hitline")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/hitline")
	build.Dir = "../../.." // the module of hitline
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %s", err, out)
	}
	return path, nil
}

// server is hitline in a process of its own.
type server struct {
	t       *testing.T
	config  string // its configuration in YAML, without addresses and log
	address string // of lookups: tcp://HOST:PORT
	metrics string // HOST:PORT
	cmd     *exec.Cmd
	log     *logtest.Buffer
	exited  chan error
}

// startServer starts hitline on free ports of the loopback and waits until it is ready. It is stopped
// with the test, which fails if the program fails. The section listen of the configuration, if there is
// one, has to have the address tcp://127.0.0.1:0 alone.
func startServer(t *testing.T, config string) *server {
	t.Helper()
	return startServerAt(t, "127.0.0.1", config)
}

// startServerAt is startServer at another address of the loopback.
func startServerAt(t *testing.T, host, config string) *server {
	t.Helper()
	requireBrowser(t) // without which no server is needed
	s := &server{t: t, config: config, address: "tcp://" + host + ":0", metrics: host + ":0"}
	t.Cleanup(s.stop)
	s.start()
	return s
}

// page returns the address of the status page.
func (s *server) page() string { return "http://" + s.metrics + "/" }

// start starts the program at its addresses and waits until it is ready.
func (s *server) start() {
	s.t.Helper()
	path, err := program()
	s.require(err)
	config := filepath.Join(s.t.TempDir(), "hitline.yaml")
	text := s.config + "\nmetrics: " + s.metrics + "\nlog: {format: json}\n"
	if strings.Contains(text, "listen:") {
		text = strings.Replace(text, "tcp://127.0.0.1:0", s.address, 1)
	} else {
		text += "listen: [" + s.address + "]\n"
	}
	s.require(os.WriteFile(config, []byte(text), 0o600))
	cmd := exec.Command(path, "serve", "--config", config, "--exit-on-stdin-eof")
	log, exited := new(logtest.Buffer), make(chan error, 1)
	cmd.Stderr = log
	_, err = cmd.StdinPipe() // it ends with the test, however that ends
	s.require(err)
	s.require(cmd.Start())
	s.cmd, s.log, s.exited = cmd, log, exited
	go func() { exited <- cmd.Wait() }()
	s.waitReady()
}

// waitReady waits for the line of the log that has the bound addresses.
func (s *server) waitReady() {
	s.t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
		for line := range strings.Lines(s.log.String()) {
			var ready struct {
				Msg     string
				Listen  []string
				Metrics string
			}
			if json.Unmarshal([]byte(line), &ready) == nil && ready.Msg == "ready" {
				s.address, s.metrics = ready.Listen[0], ready.Metrics
				return
			}
		}
		if len(s.exited) > 0 || time.Now().After(deadline) {
			s.t.Fatalf("hitline does not become ready: %s", s.log)
		}
	}
}

// stop ends the program as an operator does, and waits for it.
func (s *server) stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(timeout, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := <-s.exited; err != nil {
		s.t.Errorf("hitline: %v: %s", err, s.log)
	}
	s.cmd = nil
}

func (s *server) require(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// dial returns a client, whose single connection is open until the test ends.
func (s *server) dial(options ...client.Option) *client.Client {
	s.t.Helper()
	c, err := client.Dial(s.t.Context(), s.address, append(options, client.WithConnections(1), client.WithTimeout(timeout))...)
	s.require(err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// blockSize is the tokens of a block where a pool says nothing else.
const blockSize = 16

// prompt returns the hashes of a prompt of n blocks. Prompts of one name begin alike.
func prompt(name string, n int) netproto.Hashes {
	var blob []byte
	for i := range n {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, i))
		blob = append(blob, hash[:]...)
	}
	return netproto.NewHashes(blob, sha256.Size)
}

// hexLines returns hashes as users paste them, one a line.
func hexLines(hashes netproto.Hashes) string {
	var text strings.Builder
	for blob := hashes.Bytes(); len(blob) > 0; blob = blob[sha256.Size:] {
		fmt.Fprintf(&text, "%x\n", blob[:sha256.Size])
	}
	return text.String()
}

// storePrompt stores the first n blocks of a prompt.
func storePrompt(t *testing.T, c *client.Client, name string, n int) {
	t.Helper()
	if _, err := c.StorePrompt(t.Context(), api.PromptStore{NumTokens: int64(n * blockSize)}, prompt(name, n)); err != nil {
		t.Fatal(err)
	}
}

// lookUp looks a prompt of n blocks up and returns the tokens of its hit.
func lookUp(t *testing.T, c *client.Client, name string, n int) int64 {
	t.Helper()
	hit, err := c.Lookup(t.Context(), int64(n*blockSize), prompt(name, n))
	if err != nil {
		t.Fatal(err)
	}
	return hit.Tokens
}

// send writes bytes to the lookup port and waits until the server closes the connection.
func (s *server) send(text string) {
	s.t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.address, "tcp://"), timeout)
	s.require(err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	s.require(err)
	_, _ = io.Copy(io.Discard, conn) // it may end by a reset
}
