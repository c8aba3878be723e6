//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// serverSpec is the configuration of a server that an attack needs.
type serverSpec struct {
	env       []string // HITLINE_… variables; FAKE stands for the address of the fake store
	metrics   bool     // serves the metrics port
	unreadLog bool     // nobody reads its log after it is ready
	addrSpace int      // ulimit -v in KiB; 0: none
}

// serverProcess is a hitline serve that was started.
type serverProcess struct {
	cmd     *exec.Cmd
	addr    string        // host:port, after tlsScheme if it has TLS
	metrics string        // host:port, if served
	log     *os.File      // the end of its log that this process reads
	exited  chan struct{} // closed when it has ended

	mu   sync.Mutex
	last string // last line of the log
}

// startTimeout bounds the start of a server, a child or a connection.
const startTimeout = 30 * time.Second

// startServer starts a server and waits until it is ready. config is the path of a configuration
// with its address, empty for one without TLS.
func startServer(ctx context.Context, path, config string, spec serverSpec, fake string) (*serverProcess, error) {
	args := []string{"serve", "--listen", "tcp://127.0.0.1:0", "--loops", "1"}
	if config != "" {
		args = []string{"serve", "--config", config, "--loops", "1"}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	if spec.addrSpace > 0 {
		script := fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, spec.addrSpace)
		cmd = exec.CommandContext(ctx, "sh", append([]string{"-c", script, path}, args...)...)
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HITLINE_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "HITLINE_LOG_FORMAT=json")
	if spec.metrics {
		cmd.Env = append(cmd.Env, "HITLINE_METRICS=127.0.0.1:0")
	}
	for _, variable := range spec.env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(variable, "FAKE", fake))
	}
	s := &serverProcess{cmd: cmd, exited: make(chan struct{})}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("attack: cannot make a pipe for the server's log: %w", err)
	}
	s.log = read
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = childAttributes()
	err = cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("attack: cannot start %s: %w; `make build` builds it", path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(s.exited)
	}()
	ready := make(chan struct{})
	go s.readLog(ready, spec.unreadLog)
	select {
	case <-ready:
		return s, nil
	case <-s.exited:
		time.Sleep(100 * time.Millisecond) // the log is read on another goroutine
		err = fmt.Errorf("attack: %s ended (%v) before it was ready: %s", path, cmd.ProcessState, s.lastLine())
	case <-time.After(startTimeout):
		err = fmt.Errorf("attack: %s is not ready after %v: %s", path, startTimeout, s.lastLine())
	}
	s.stop()
	return nil, err
}

// childAttributes are those of every child: it has a process group of its own, so that a signal
// of the terminal reaches this process only, and ends with this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// readLog reads the log to its end, or only up to the line that says ready. It closes ready at
// that line.
func (s *serverProcess) readLog(ready chan<- struct{}, stopAtReady bool) {
	lines := bufio.NewReaderSize(s.log, 64<<10)
	for isReady := false; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.last = strings.TrimSpace(line)
		s.mu.Unlock()
		var entry struct {
			Msg     string
			Listen  []string
			Metrics string
		}
		if !isReady && json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "ready" && len(entry.Listen) > 0 {
			s.addr = strings.TrimPrefix(entry.Listen[0], "tcp://")
			_, s.metrics, _ = strings.Cut("://"+entry.Metrics, "://")
			isReady = true
			close(ready)
			if stopAtReady {
				return
			}
		}
	}
}

// lastLine is the last line of the log that was read.
func (s *serverProcess) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// stop kills the server and waits for its end.
func (s *serverProcess) stop() {
	if !s.died() {
		_ = s.cmd.Process.Kill() // fails if it has just ended
	}
	<-s.exited
	s.log.Close()
}

// died says whether the server has ended by itself, if stop was not called.
func (s *serverProcess) died() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// resetPeak makes the peak of the resident memory start anew.
func (s *serverProcess) resetPeak() {
	// It fails on kernels without this file; the peak is then that since the start.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0)
}

// memory returns the resident memory in MiB, now and at its peak; 0 if the server has ended.
func (s *serverProcess) memory() (now, peak int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	return statusField(string(text), "VmRSS:"), statusField(string(text), "VmHWM:")
}

// statusField returns a field of /proc/PID/status in MiB, 0 if it is not there.
func statusField(text, name string) int {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		kib, _ := strconv.Atoi(fields[0]) // 0 if it is no number
		return kib / 1024
	}
	return 0
}

// dial connects to a server.
func dial(addr string) (net.Conn, error) {
	return dialWith(&net.Dialer{Timeout: startTimeout}, addr)
}

// roundTrip sends a request and returns the frames of its reply.
func roundTrip(conn net.Conn, request []byte, timeout time.Duration) ([][]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	var in []byte
	buf := make([]byte, 64<<10)
	for {
		frames, _, err := netproto.ParseMessage(in, netproto.Limits{}, nil)
		if err == nil {
			return frames, conn.SetDeadline(time.Time{})
		}
		if !errors.Is(err, netproto.ErrShort) {
			return nil, err
		}
		n, err := conn.Read(buf)
		in = append(in, buf[:n]...)
		if err != nil && n == 0 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// done sends a request and returns an error unless it is answered 01.
func done(conn net.Conn, request []byte) error {
	frames, err := roundTrip(conn, request, startTimeout)
	if err != nil {
		return err
	}
	if len(frames[0]) != 1 || frames[0][0] != netproto.StatusDone {
		return fmt.Errorf("attack: the server refused a request: %q", frames)
	}
	return nil
}

// readStat returns the server's counters.
func readStat(conn net.Conn, timeout time.Duration) (api.Stat, error) {
	var stat api.Stat
	frames, err := roundTrip(conn, request(netproto.TagStat), timeout)
	if err != nil {
		return stat, fmt.Errorf("attack: cannot read the counters: %w", err)
	}
	if len(frames) != 2 {
		return stat, fmt.Errorf("attack: stat was answered %q", frames)
	}
	return stat, json.Unmarshal(frames[1], &stat)
}
