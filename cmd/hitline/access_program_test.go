package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// program is a serve in a process of its own.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	config string // path of its configuration
	log    logtest.Buffer

	addresses []string // bound, in the order of the configuration
	metrics   string   // host:port
}

// startProgramWith starts serve with a configuration, which has all its addresses. It is stopped
// with the test, which fails if the program fails.
func startProgramWith(t *testing.T, yaml string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{t: t, config: configFile(t, yaml)}
	p.cmd = exec.Command(self, append([]string{"serve", "--config", p.config}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = &p.log
	require.NoError(t, p.cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		assert.NoError(t, <-exited, "%s", lastLines(p.log.String()))
	})
	storetest.Eventually(t, "serve is ready", func() bool {
		if len(exited) > 0 {
			t.Fatalf("serve has ended: %s", p.log.String())
		}
		for line := range strings.Lines(p.log.String()) {
			var ready struct {
				Listen  []string
				Metrics string
			}
			if strings.Contains(line, `"msg":"ready"`) && json.Unmarshal([]byte(line), &ready) == nil {
				p.addresses, p.metrics = ready.Listen, ready.Metrics
			}
		}
		return p.addresses != nil
	})
	return p
}

// lastLines returns the end of a log.
func lastLines(log string) string {
	return log[max(0, len(log)-2000):]
}

// reload changes the configuration unless yaml is empty, sends SIGHUP, and returns what has been
// logged once a line has the message and the text.
func (p *program) reload(yaml, message, text string) string {
	p.t.Helper()
	before := len(p.log.String())
	if yaml != "" {
		replaceFile(p.t, p.config, yaml)
	}
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGHUP))
	var log string
	defer func() {
		if p.t.Failed() {
			p.t.Log("the log since SIGHUP:", log)
		}
	}()
	storetest.Eventually(p.t, "serve logs "+message, func() bool {
		log = p.log.String()[before:]
		for line := range strings.Lines(log) {
			if strings.Contains(line, `"msg":"`+message+`"`) && strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return true
			}
		}
		return false
	})
	return log
}

// replaceFile replaces a file in one step, as editors and secret volumes do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// publicIP returns an address of this machine that is not loopback, or else the unspecified
// one, for which a listener has the same default.
func publicIP(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return "0.0.0.0"
}

// peer is how a client reaches a listener, and as whom.
type peer struct {
	address string
	token   string // "" for none
	tls     *tls.Config
}

// rawConn is a connection in the raw dialect.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

// dialRaw connects. Over TLS the handshake is done, but the server may yet refuse the
// certificate.
func (p peer) dialRaw() (*rawConn, error) {
	network, address, err := api.SplitAddress(p.address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: storetest.Timeout}
	var c net.Conn
	if p.tls != nil {
		c, err = tls.DialWithDialer(dialer, "tcp", address, p.tls)
	} else {
		c, err = dialer.Dial(strings.Replace(network, "tls", "tcp", 1), address)
	}
	if err != nil {
		return nil, err
	}
	return &rawConn{c, bufio.NewReader(c)}, c.SetDeadline(time.Now().Add(storetest.Timeout))
}

// exchange makes a request and returns the frames of its reply.
func (c *rawConn) exchange(frames ...[]byte) ([][]byte, error) {
	var message []byte
	for i, f := range frames {
		message = netproto.AppendFrame(message, f, i < len(frames)-1)
	}
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	return c.read()
}

// read reads a reply.
func (c *rawConn) read() ([][]byte, error) {
	var in []byte
	for {
		b, err := c.in.ReadByte()
		if err != nil {
			return nil, err
		}
		in = append(in, b)
		if frames, _, err := netproto.ParseMessage(in, netproto.Limits{}, nil); err == nil {
			return frames, nil
		}
	}
}

// dial connects the Go client.
func (p peer) dial(opts ...client.Option) (*client.Client, error) {
	if p.tls != nil {
		opts = append(opts, client.WithTLS(p.tls))
	}
	opts = append([]client.Option{client.WithTimeout(storetest.Timeout), client.WithToken(p.token)}, opts...)
	return client.Dial(context.Background(), p.address, opts...)
}

// statOf returns the counters that a client sees.
func statOf(t *testing.T, c *client.Client) (s api.Stat) {
	t.Helper()
	doc, err := c.Stat(context.Background())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(doc, &s))
	return s
}

// certificates are authorities and certificates in the files of a folder.
type certificates struct {
	dir          string
	ours, theirs *certtest.CA
	caFile       string // of ours
	public       string
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{dir: t.TempDir(), ours: certtest.NewCA("ours"), theirs: certtest.NewCA("theirs"), public: publicIP(t)}
	c.caFile = c.ours.WriteFile(filepath.Join(c.dir, "ca.crt"))
	c.write("server", c.ours, "localhost", "127.0.0.1", c.public)
	return c
}

// write writes NAME.crt and NAME.key.
func (c *certificates) write(name string, ca *certtest.CA, names ...string) {
	certtest.WriteFiles(c.dir, name, ca.Leaf(names...))
}

// client returns the configuration of a client that trusts ours, with the certificate of the
// files NAME.crt and NAME.key unless name is empty.
func (c *certificates) client(t *testing.T, name string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: c.ours.Pool(), MinVersion: tls.VersionTLS13}
	if name != "" {
		base := filepath.Join(c.dir, name)
		leaf, err := tls.LoadX509KeyPair(base+".crt", base+".key")
		require.NoError(t, err)
		// Also to a server that does not want one of its authority.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
	}
	return cfg
}

// yaml returns the tls section of a listener.
func (c *certificates) yaml(mutual bool) string {
	text := fmt.Sprintf("cert: %s/server.crt, key: %s/server.key", c.dir, c.dir)
	if mutual {
		text += ", client_ca: " + c.caFile
	}
	return "tls: {" + text + "}"
}
