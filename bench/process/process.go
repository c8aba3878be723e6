//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Options says how a server is started.
type Options struct {
	Cores   []int         // that it runs on, by the system's numbers; nil: any
	Timeout time.Duration // longest wait until it is ready

	// Ready finds in a line of the server's output where it listens. The default
	// takes the line with which hitline says so.
	Ready func(line []byte) (addr string, ready bool)
}

// Process is a server or program that was started.
type Process struct {
	cmd    *exec.Cmd
	log    *output
	addr   string
	exited chan struct{} // closed when it has been waited for
}

// Start starts a server and waits until it says where it listens. What it prints is
// not shown; if the caller has set cmd.Stdout, only standard error is read here. The
// caller stops the server; should this process be killed, the kernel kills it (on Linux).
// An error wraps [measure.ErrLost].
func Start(ctx context.Context, cmd *exec.Cmd, o Options) (*Process, error) {
	if o.Ready == nil {
		o.Ready = hitlineReady
	}
	ready := make(chan string, 1)
	p, err := launch(cmd, o.Cores, &output{find: o.Ready, ready: ready})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	select {
	case p.addr = <-ready:
		return p, nil
	case <-p.exited:
		err = fmt.Errorf("%w: %s ended (%s): %s", measure.ErrLost, cmd.Path, p.Ended(), p.log.last())
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s is not ready: %w", measure.ErrLost, cmd.Path, ctx.Err())
	}
	p.Stop()
	return nil, err
}

// launch starts a program that writes to log whatever has no other place to go.
func launch(cmd *exec.Cmd, cores []int, log *output) (*Process, error) {
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = outputGrace
	p := &Process{cmd: cmd, log: log, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.live(cores, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: cannot start %s: %w", measure.ErrLost, cmd.Path, err)
	}
	return p, nil
}

// live starts the server from a thread on its cores, so that all of its threads
// inherit that, and waits for its end. The thread must not end before, or the
// kernel would take its end for the bench's, and nobody may have it afterwards.
func (p *Process) live(cores []int, started chan<- error) {
	runtime.LockOSThread() // without unlocking, the thread ends with the goroutine
	if len(cores) > 0 {
		if err := pinThread(0, cores...); err != nil {
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

// outputGrace is how long the output of a program is waited for after its end: a process that
// it leaves behind may keep it open for ever.
const outputGrace = time.Second

// Stop kills the server, with those that it has started itself, and waits for its
// end. It may be called again.
func (p *Process) Stop() {
	select {
	case <-p.exited: // its number may be another's by now
	default:
		kill(p.cmd.Process)
	}
	<-p.exited
}

// Addr is where the server listens, as it said.
func (p *Process) Addr() string { return p.addr }

// Exited is closed when the server has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Ended says how the server ended; only after Exited.
func (p *Process) Ended() string { return p.cmd.ProcessState.String() }

// FreeAddr returns an address host:port of loopback that was free a moment ago.
func FreeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}
