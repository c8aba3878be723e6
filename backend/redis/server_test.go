package redis

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	DiscardDriverLog()
	code := m.Run()
	if theCluster != nil {
		theCluster.stop()
	}
	if code == 0 {
		// gnet, which the lookup service brings along, keeps these for the whole process.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// binaries are the servers that this machine has.
func binaries(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no redis-server, which CI must have")
		}
		t.Skip("no redis-server and no valkey-server on this machine (Debian: redis-server)")
	}
	return found
}

// server is a server process of a test.
type server struct {
	binary, dir, addr string
	args              []string
	pid               int
	hold              io.Closer // the server dies when it is closed, or with this process
	watcher           *exec.Cmd
}

func freeAddr(t testing.TB) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; port < 55000 { // a cluster's second port is 10000 above
			return l.Addr().String()
		}
	}
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, binaries(t)[0], t.TempDir(), args...)
	t.Cleanup(s.stop)
	return s
}

func newServer(t testing.TB, binary, dir string, args ...string) *server {
	t.Helper()
	s := &server{binary: binary, dir: dir, addr: freeAddr(t), args: args}
	s.start(t)
	return s
}

func (s *server) port() string { _, port, _ := net.SplitHostPort(s.addr); return port }

// start starts the process, which a shell ends when its input does.
func (s *server) start(t testing.TB) {
	t.Helper()
	args := []string{"-c", `"$@" & echo $!; read -r _; kill -9 $!; wait`, "sh", s.binary,
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log")}
	if !strings.Contains(strings.Join(s.args, " "), "--tls-port") {
		args = append(args, "--port", s.port())
	}
	s.watcher = exec.Command("sh", append(args, s.args...)...)
	in, err := s.watcher.StdinPipe()
	require.NoError(t, err)
	out, err := s.watcher.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.watcher.Start())
	s.hold = in
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			return false
		}
		defer conn.Close()
		return true
	}, patience, 5*time.Millisecond, "the server does not start")
}

// kill ends the process at once.
func (s *server) kill() { _ = syscall.Kill(s.pid, syscall.SIGKILL) }

func (s *server) stop() {
	_ = s.hold.Close()
	_ = s.watcher.Wait()
}

// client is a driver's own connection to the server.
func (s *server) client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// cluster is three nodes.
type cluster struct {
	nodes []*server
	dir   string
}

var (
	theCluster     *cluster
	theClusterOnce sync.Once
)

// sharedCluster returns a running cluster, empty.
func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	binary := binaries(t)[0]
	theClusterOnce.Do(func() {
		dir, err := os.MkdirTemp("", "hitline-redis-")
		require.NoError(t, err)
		c := &cluster{dir: dir}
		theCluster = c
		for i := range 3 {
			at := filepath.Join(dir, strconv.Itoa(i))
			require.NoError(t, os.Mkdir(at, 0o755))
			c.nodes = append(c.nodes, newServer(t, binary, at, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500"))
		}
		ctx := context.Background()
		for i, n := range c.nodes {
			client := n.client(t)
			require.NoError(t, client.ClusterAddSlotsRange(ctx, i*5461, min(i*5461+5460, 16383)).Err())
			require.NoError(t, client.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
			require.NoError(t, client.ClusterMeet(ctx, "127.0.0.1", c.nodes[0].port()).Err())
		}
		last := c.nodes[2].client(t) // the last slot
		require.NoError(t, last.ClusterAddSlots(ctx, 16383).Err())
	})
	require.NotNil(t, theCluster)
	theCluster.ready(t)
	for _, n := range theCluster.nodes {
		require.NoError(t, n.client(t).FlushAll(context.Background()).Err())
	}
	return theCluster
}

// ready waits until all nodes agree that all is well.
func (c *cluster) ready(t testing.TB) {
	t.Helper()
	for _, n := range c.nodes {
		client := n.client(t)
		require.Eventually(t, func() bool {
			info, err := client.ClusterInfo(context.Background()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		}, patience, 20*time.Millisecond, "the cluster does not get well")
	}
}

func (c *cluster) url() string {
	return "redis-cluster://" + c.nodes[0].addr + "?addr=" + c.nodes[1].addr
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.stop()
	}
	_ = os.RemoveAll(c.dir)
}

// testBackend returns a backend that is closed with the test. Fields that cfg
// leaves out are a test's.
func testBackend(t testing.TB, cfg Config) *Backend {
	t.Helper()
	if cfg.KeyPrefix == "" {
		cfg.KeyPrefix = "m"
	}
	b, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert, key
}

func tlsServer(t testing.TB, more ...string) (s *server, cert, key string) {
	t.Helper()
	cert, key = certificate(t)
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	s = &server{binary: binaries(t)[0], dir: t.TempDir(), addr: addr, args: append([]string{
		"--port", "0", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert}, more...)}
	s.start(t)
	t.Cleanup(s.stop)
	return s, cert, key
}
