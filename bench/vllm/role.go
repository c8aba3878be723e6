package vllm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"github.com/hitline/hitline/bench/process"
)

// role is a Python process in one of the roles of over_master.py. It takes one request at a
// time, and ends with its input. It is not safe for concurrent use.
type role struct {
	name    string
	cmd     *exec.Cmd
	input   io.WriteCloser
	replies *bufio.Reader
	log     *tail
	timeout time.Duration // longest wait for a reply, beside the work of the request
}

// startRole starts a process and waits until it is ready. stopRoles stops it, also after an
// error.
func (m *meter) startRole(ctx context.Context, name string) (*role, error) {
	cmd := exec.Command(m.o.Python, "-B", m.path("over_master.py"), name, m.o.Release, m.folder, m.masterAddr)
	cmd.Env = append(process.Environ(), "PYTHONPATH="+m.folder, "PYTHONUNBUFFERED=1")
	r := &role{name: name, cmd: cmd, log: &tail{}, timeout: m.o.Timeout}
	cmd.Stderr = r.log
	cmd.WaitDelay = time.Second
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r.replies = bufio.NewReader(output)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: cannot start %s: %w", measure.ErrLost, m.o.Python, err)
	}
	m.roles = append(m.roles, r)
	return r, r.read(ctx, r.timeout, &struct{}{})
}

// do sends a request and decodes the reply, which it awaits for work and timeout.
func (r *role) do(ctx context.Context, work time.Duration, request, reply any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := r.input.Write(append(text, '\n')); err != nil {
		return r.lost(err)
	}
	return r.read(ctx, work+r.timeout, reply)
}

// read reads one reply, and skips lines that libraries print. If none comes within timeout, or
// ctx ends, it kills the process.
func (r *role) read(ctx context.Context, timeout time.Duration, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = r.cmd.Process.Kill() })()
	for {
		line, err := r.replies.ReadBytes('\n')
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w: the Python process %s gave no answer: %w", measure.ErrLost, r.name, context.Cause(ctx))
		case err != nil:
			return r.lost(err)
		case line[0] != '{':
			continue
		}
		return json.Unmarshal(line, reply)
	}
}

// lost stops a process that failed, and returns the last line of its standard error as an error.
func (r *role) lost(err error) error {
	r.stop()
	if line := r.log.last(); line != "" {
		err = errors.New(line)
	}
	return fmt.Errorf("%w: the Python process %s ended: %w", measure.ErrLost, r.name, err)
}

// stop ends the process, by SIGKILL after 5 s. It may be called again.
func (r *role) stop() {
	_ = r.input.Close()
	if r.cmd.ProcessState != nil {
		return
	}
	kill := time.AfterFunc(5*time.Second, func() { _ = r.cmd.Process.Kill() })
	defer kill.Stop()
	_ = r.cmd.Wait()
}

// tail keeps the last 16 KiB that a process prints. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const keep = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - keep; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

// libraryLine begins a line that Mooncake logs, the first one of all included.
var libraryLine = regexp.MustCompile(`^([IWEF]\d{4} |WARNING: Logging before )`)

// last returns the last line that is not a library's.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.text), []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if line := bytes.TrimSpace(lines[i]); len(line) > 0 && !libraryLine.Match(line) {
			return string(line)
		}
	}
	return ""
}
