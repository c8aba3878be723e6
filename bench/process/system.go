//go:build linux

package process

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are those of every server.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // a signal from the terminal is ours to act on
	}
}

// kill ends a server and its group: one that is a script leaves what it runs to it.
func kill(p *os.Process) {
	_ = unix.Kill(-p.Pid, unix.SIGKILL) // fails if all have ended
	_ = p.Kill()
}

// Cores returns the cores that this process may run on; none where it cannot be
// pinned. They are those of the calling thread: the first one may have been kept to a
// server's cores to start it.
func Cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cannot tell the cores: %w", err)
	}
	var cores []int
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// pinThread lets a thread, 0 for the calling one, run on these cores only.
func pinThread(id int, cores ...int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	if err := unix.SchedSetaffinity(id, &set); err != nil {
		return fmt.Errorf("cannot pin to cores %v: %w", cores, err)
	}
	return nil
}

// Pin lets all threads that this process has run on these cores only; those to
// come inherit it.
func Pin(cores ...int) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("cannot list the threads: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		if err := pinThread(id, cores...); err != nil && unix.Kill(id, 0) == nil { // it may have ended
			return err
		}
	}
	return nil
}
