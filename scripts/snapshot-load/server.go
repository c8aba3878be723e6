//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// logLine is what is read of a line of the server's log.
type logLine struct {
	Time    time.Time
	Msg     string
	Listen  []string
	Entries int
	Bytes   int64
	Seconds float64
}

// serverProcess is a hitline serve that was started.
type serverProcess struct {
	cmd     *exec.Cmd
	address string
	loaded  logLine      // what it has loaded
	written chan logLine // snapshots, in order; closed when its log ends
}

// entryBytes is the memory for an entry, in bytes: see docs/operations.md.
const entryBytes = 80

// startServer starts a server that keeps its index at path, and waits until it is ready. Its end is that of
// ctx, stop or kill.
func startServer(ctx context.Context, program, path string, entries int, interval time.Duration) (*serverProcess, error) {
	s := &serverProcess{cmd: exec.CommandContext(ctx, program, "serve", "--listen", "tcp://127.0.0.1:0"), written: make(chan logLine, 1024)}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HITLINE_") {
			s.cmd.Env = append(s.cmd.Env, variable)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "HITLINE_LOG_FORMAT=json",
		fmt.Sprintf("HITLINE_BACKEND_MEMORY_MAX_BYTES=%d", max(64<<20, entries*entryBytes)),
		"HITLINE_BACKEND_MEMORY_SNAPSHOT_PATH="+path,
		"HITLINE_BACKEND_MEMORY_SNAPSHOT_INTERVAL="+interval.String())
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	log := bufio.NewScanner(out)
	for s.address == "" && log.Scan() {
		var line logLine
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			s.kill()
			return nil, fmt.Errorf("the server says: %s", log.Text())
		}
		switch line.Msg {
		case "snapshot loaded":
			s.loaded = line
		case "ready":
			s.address = line.Listen[0]
		}
	}
	if s.address == "" {
		s.kill()
		return nil, errors.New("the server ended without being ready")
	}
	go s.follow(log, out) // until the server ends
	return s, nil
}

// follow reads the log until it ends. Nobody need receive what it has read.
func (s *serverProcess) follow(log *bufio.Scanner, out io.Reader) {
	defer close(s.written)
	for log.Scan() {
		var line logLine
		if json.Unmarshal(log.Bytes(), &line) != nil || line.Msg != "snapshot written" {
			continue
		}
		select {
		case s.written <- line:
		default:
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// stop ends the server by SIGTERM and returns its last snapshot.
func (s *serverProcess) stop() (last logLine, err error) {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return last, err
	}
	for line := range s.written {
		last = line
	}
	if err := s.cmd.Wait(); err != nil {
		return last, fmt.Errorf("the server: %w", err)
	}
	if last.Msg == "" {
		return last, errors.New("the server wrote no last snapshot")
	}
	return last, nil
}

// kill ends the server at once.
func (s *serverProcess) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
