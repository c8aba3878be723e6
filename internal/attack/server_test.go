//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/netproto"
)

// serverSpec is the configuration of a server that a row needs.
type serverSpec struct {
	env       []string // HITLINE_… variables
	metrics   bool     // serves the metrics port
	router    bool     // serves HTTP for routers, over TLS if this program's servers have TLS
	unreadLog bool     // nobody reads its log after it is ready
	fullStore bool     // is over the store that has every block
	config    string   // path of its configuration; "": one of configs
}

// serverProcess is a hitline serve that was started.
type serverProcess struct {
	cmd     *exec.Cmd
	addr    string        // host:port, after tlsScheme if it has TLS
	metrics string        // host:port, if served
	router  string        // likewise
	secure  string        // address of its second listener, after tlsScheme
	log     *os.File      // the end of its log that this process reads
	exited  chan struct{} // closed when it has ended
	ask     net.Conn      // for stat
}

// startTimeout bounds the start of a server and a connection.
const startTimeout = 30 * time.Second

// startServer starts a server and waits until it is ready.
func startServer(ctx context.Context, spec serverSpec) (*serverProcess, error) {
	args := []string{hitline, "serve", "--loops", "1", "--config", cmp.Or(spec.config, configs[spec.router])}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = childAttributes()
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HITLINE_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "HITLINE_LOG_FORMAT=json")
	if spec.metrics {
		cmd.Env = append(cmd.Env, "HITLINE_METRICS=127.0.0.1:0")
	}
	if spec.fullStore {
		cmd.Env = append(cmd.Env, "HITLINE_BACKEND_MOONCAKE_MASTERS="+fullStore, "HITLINE_BACKEND_MOONCAKE_TIMEOUT=10s")
	}
	cmd.Env = append(cmd.Env, spec.env...)
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("attack: cannot make a pipe for the server's log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("attack: cannot start the server: %w", err)
	}
	s := &serverProcess{cmd: cmd, log: read, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(s.exited)
	}()
	_ = read.SetReadDeadline(time.Now().Add(startTimeout)) // pipes have deadlines
	if err = s.readLog(spec.unreadLog); err == nil {
		s.ask, err = dial(s.addr)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// childAttributes keep a signal of the terminal from a child, and end it with this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// readLog reads the log up to the line that says ready, and then, unless it is to stay unread, its
// errors into those of this process.
func (s *serverProcess) readLog(unread bool) error {
	lines := bufio.NewReader(s.log)
	for last := ""; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("attack: the server is not ready: %w: %s", err, last)
		}
		last = line
		var entry struct {
			Msg             string
			Listen          []string
			Metrics, Router string
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != "ready" || len(entry.Listen) == 0 {
			continue
		}
		s.addr = strings.TrimPrefix(entry.Listen[len(entry.Listen)-1], "tcp://")
		s.secure = entry.Listen[0]
		s.metrics, s.router = hostPort(entry.Metrics), hostPort(entry.Router)
		break
	}
	_ = s.log.SetReadDeadline(time.Time{})
	if !unread {
		go func() {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.HasPrefix(line, "{") { // no line of the log, but of a panic
					fmt.Fprint(os.Stderr, line)
				}
			}
		}()
	}
	return nil
}

// stop kills the server and waits for its end.
func (s *serverProcess) stop() {
	_ = s.cmd.Process.Kill() // fails if it has ended
	<-s.exited
	s.log.Close()
	if s.ask != nil {
		s.ask.Close()
	}
}

// died returns how the server has ended by itself; nil if it has not. It may be about to.
func (s *serverProcess) died() error {
	select {
	case <-s.exited:
		return fmt.Errorf("attack: the server died: %v", s.cmd.ProcessState)
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// resetPeak makes the peak of the resident memory start anew.
func (s *serverProcess) resetPeak() {
	// It fails on kernels without this file; the peak is then that since the start.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0)
}

// memory returns the resident memory in MiB, now and at its peak; 0 if the server has ended.
func (s *serverProcess) memory() (now, peak int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "VmRSS:":
			now, _ = strconv.Atoi(fields[1])
		case len(fields) > 1 && fields[0] == "VmHWM:":
			peak, _ = strconv.Atoi(fields[1])
		}
	}
	return now / 1024, peak / 1024
}

// stat returns the server's counters. Those by reason are named closed.REASON.
func (s *serverProcess) stat() (counters map[string]float64, err error) {
	_ = s.ask.SetDeadline(time.Now().Add(startTimeout)) // it may be lost
	if _, err := s.ask.Write(request(netproto.TagStat)); err != nil {
		return nil, fmt.Errorf("attack: cannot read the counters: %w", err)
	}
	frames, err := readMessage(bufio.NewReader(s.ask))
	if err != nil || len(frames) != 2 {
		return nil, fmt.Errorf("attack: cannot read the counters: %w, %q", err, frames)
	}
	var stat map[string]any
	if err := json.Unmarshal(frames[1], &stat); err != nil {
		return nil, fmt.Errorf("attack: cannot read the counters: %w", err)
	}
	counters = map[string]float64{}
	for name, value := range stat {
		if number, ok := value.(float64); ok {
			counters[name] = number
		}
	}
	closed, _ := stat["closed"].(map[string]any)
	for reason, value := range closed {
		counters["closed."+reason], _ = value.(float64)
	}
	return counters, nil
}

// changes returns the counters of failures that differ, and those of the index's entries.
func changes(before, after map[string]float64) (changed []string) {
	interesting := []string{"stores_refused", "accept_errors", "requests_refused", "dropped", "backend_errors",
		"backend_timeouts", "backend_rejected", "entries", "evicted"}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] && (slices.Contains(interesting, name) || strings.HasPrefix(name, "closed.")) {
			changed = append(changed, fmt.Sprintf("%s %+.0f", name, after[name]-before[name]))
		}
	}
	return changed
}

// tlsScheme begins the address of a server with TLS. Others have none.
const tlsScheme = "tls://"

// configs are the paths of the servers' configurations, without and with HTTP for routers.
var configs map[bool]string

// listenTLS is an entry of listen, with TLS.
var listenTLS string

// writeConfigs writes the configurations into a directory, and the certificate.
func writeConfigs(dir string, tls bool) {
	cert, key := certtest.WriteFiles(dir, "server", certtest.NewCA("attack").Leaf("127.0.0.1"))
	listenTLS = fmt.Sprintf("{address: \"tls://127.0.0.1:0\", tls: {cert: %q, key: %q}}", cert, key)
	address := "{address: \"tcp://127.0.0.1:0\"}"
	if tls {
		address = listenTLS
	}
	plain := fmt.Sprintf("listen: [%s]\n", address)
	router := fmt.Sprintf("router:\n  listen: %s\n  models: [{name: m, block_size: %d, hash: {type: vllm}}]\n", address, blockTokens)
	configs = map[bool]string{false: dir + "/hitline.yaml", true: dir + "/router.yaml"}
	for path, text := range map[string]string{configs[false]: plain, configs[true]: plain + router} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
}

// hostPort is an address without its scheme.
func hostPort(address string) string {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		return address
	}
	return rest
}

// dial connects to a server.
func dial(addr string) (net.Conn, error) {
	return dialWith(&net.Dialer{Timeout: startTimeout}, addr)
}

// anyServer is the configuration of a client that verifies no certificate.
func anyServer() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// dialWith connects to a server with a dialer, and makes the handshake if the address has TLS.
// The certificate is not verified: the server is one that this program has started.
func dialWith(dialer *net.Dialer, addr string) (conn net.Conn, err error) {
	host, isTLS := strings.CutPrefix(addr, tlsScheme)
	if !isTLS {
		return dialer.Dial("tcp", host)
	}
	c, err := tls.DialWithDialer(dialer, "tcp", host, anyServer())
	if err != nil {
		return nil, err // not the nil of another type
	}
	return c, nil
}
