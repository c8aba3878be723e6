//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// halve returns the cores of the server and those of the clients: half of the allowed ones each,
// the clients have the odd one. With one core they share it.
func halve(allowed []int) (server, clients []int) {
	if len(allowed) < 2 {
		return allowed, allowed
	}
	return allowed[:len(allowed)/2], allowed[len(allowed)/2:]
}

// allowedCores returns the cores that this process may use, ascending.
func allowedCores() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("agree: cannot tell the cores: %w", err)
	}
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// child is a process that was started on some cores.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been waited for
	err    error         // of waiting; read it after exited only
}

// startOn starts a command on some cores. The child has a process group of its own, so that a
// signal of the terminal reaches this process only, and ends with this process.
func startOn(cores []int, cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c := &child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The child inherits the cores of the thread that starts it, and is killed when that
		// thread ends. The thread stays locked: it ends with this goroutine.
		runtime.LockOSThread()
		var set unix.CPUSet
		for _, core := range cores {
			set.Set(core)
		}
		err := unix.SchedSetaffinity(0, &set)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("agree: cannot start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// wait waits for the end of the child.
func (c *child) wait() error {
	<-c.exited
	return c.err
}

// kill ends the child, also while it is stopped, and waits for its end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails if it has ended
	<-c.exited
}
