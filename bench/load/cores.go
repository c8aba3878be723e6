package load

import (
	"fmt"

	"github.com/hitline/hitline/bench/process"
)

// ParseCores returns the cores of a list such as "0,2-3", by the system's numbers. If it
// is no such list, or this process may not run on one of them, the error wraps
// [bench.ErrOptions].
func ParseCores(list string) ([]int, error) {
	cores, err := process.ParseCores(list)
	if err != nil {
		return nil, err
	}
	allowed, err := process.Cores()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return cores, process.CheckCores(cores, allowed)
}

// Halves returns half of the cores that this process may run on for the client, and the
// others for the server, by the system's numbers; nil for both if there is only one.
func Halves() (client, server []int, err error) {
	cores, err := process.Cores()
	if err != nil {
		return nil, nil, fmt.Errorf("load: %w", err)
	}
	p := process.Halves(cores, process.SystemCPUs())
	if p.Shared {
		return nil, nil, nil
	}
	return p.Client, p.Server, nil
}
