//go:build linux

package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/measure"
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

// clockTicks is the unit of /proc/PID/stat, a hundredth of a second on all of Linux's platforms.
const clockTicks = 100

// CPU returns the CPU time that the process has taken, those of its children left out.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("%w: %s has ended: %w", measure.ErrLost, p.cmd.Path, err)
	}
	// The name, which may hold anything, is in parentheses. User and system time are fields 14 and 15.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", p.cmd.Process.Pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// OwnCPU returns the CPU time that this process has taken.
func OwnCPU() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // fails for wrong arguments only
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
