package floor

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench"
)

// allowedCores returns the cores that this process may run on.
func allowedCores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return nil, fmt.Errorf("floor: cannot tell the cores: %w", err)
	}
	var cores []int
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// chooseCores returns the cores of the client and of the servers, nil if there is
// only one to choose from.
func chooseCores(allowed []int, o Options) ([]int, error) {
	if len(allowed) < 2 {
		return nil, nil
	}
	if most := max(o.ClientCore, o.ServerCore); most >= len(allowed) {
		return nil, fmt.Errorf("%w: core %d of %d; they count from 0", bench.ErrOptions, most, len(allowed))
	}
	return []int{allowed[o.ClientCore], allowed[o.ServerCore]}, nil
}

// pinThread lets a thread, 0 for the calling one, run on these cores only.
func pinThread(id int, cores ...int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	if err := unix.SchedSetaffinity(id, &set); err != nil {
		return fmt.Errorf("floor: cannot pin to cores %v: %w", cores, err)
	}
	return nil
}

// pinProcess pins all threads that this process has; those to come inherit it.
func pinProcess(cores ...int) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("floor: cannot list the threads: %w", err)
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
