package floor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a server that was started.
type process struct {
	cmd    *exec.Cmd
	addr   string
	exited chan struct{} // closed when it has been waited for
}

// startProcess starts a server on a core, any if it is negative, and waits until
// it says where it listens. The caller stops it.
func startProcess(ctx context.Context, cmd *exec.Cmd, core int, timeout time.Duration) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	log := &serverLog{ready: make(chan string, 1)}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // a signal from the terminal is ours to act on
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.live(core, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: cannot start %s: %w", ErrLost, cmd.Path, err)
	}
	var err error
	select {
	case p.addr = <-log.ready:
		return p, nil
	case <-p.exited:
		err = fmt.Errorf("%w: %s ended (%v): %s", ErrLost, cmd.Path, cmd.ProcessState, log.last())
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s is not ready: %w", ErrLost, cmd.Path, ctx.Err())
	}
	p.stop()
	return nil, err
}

// live starts the server from a thread on its core, so that all of its threads
// inherit that, and waits for its end. The thread must not end before, or the
// kernel would take its end for the client's, and nobody may have it afterwards.
func (p *process) live(core int, started chan<- error) {
	runtime.LockOSThread() // without unlocking, the thread ends with the goroutine
	if core >= 0 {
		if err := pinThread(0, core); err != nil {
			started <- err
			return
		}
	}
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.exited)
	}
}

// stop kills the server and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.exited
}

// cpu returns the CPU time that the server has used.
func (p *process) cpu() (time.Duration, error) {
	var used unix.Timespec
	clock := ^int32(p.cmd.Process.Pid)<<3 | 2 // CPUCLOCK_SCHED, as clock_getcpuclockid(3) makes it
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0, fmt.Errorf("floor: cannot tell the CPU time of %s: %w", p.cmd.Path, err)
	}
	return time.Duration(used.Nano()), nil
}

// serverLog takes a server's log, finds the line that says it is ready and keeps
// the last one.
type serverLog struct {
	ready chan string // room for one

	mu   sync.Mutex
	text []byte // what is not yet a line
	line string // the last one
}

// Write implements io.Writer.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	for {
		line, rest, whole := bytes.Cut(l.text, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.take(line)
		l.text = rest
	}
}

// take takes a whole line.
func (l *serverLog) take(line []byte) {
	l.line = strings.TrimSpace(string(line))
	var entry struct {
		Msg    string
		Listen []string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Msg != "ready" || len(entry.Listen) == 0 {
		return
	}
	select {
	case l.ready <- entry.Listen[0]:
	default: // said twice
	}
}

// last returns the last line.
func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line == "" {
		return "it said nothing"
	}
	return l.line
}

// idleCPU returns the milliseconds of CPU that the server uses in a second without
// requests.
func (p *process) idleCPU(ctx context.Context) (*float64, error) {
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	select {
	case <-time.After(time.Second):
	case <-p.exited:
		return nil, fmt.Errorf("%w: %s ended (%v)", ErrLost, p.cmd.Path, p.cmd.ProcessState)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := p.cpu()
	if err != nil {
		return nil, errors.Join(ErrLost, err)
	}
	used := round3(float64(after-before) / float64(time.Since(start)) * 1000)
	return &used, nil
}
