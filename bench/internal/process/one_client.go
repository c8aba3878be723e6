package process

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/hitline/hitline/bench"
)

// OneCore gives the client the core with this number (negative: the first of cores),
// and the servers those that are named, or else all other cores. The other threads
// of the client's core stay idle then, unless there is nothing else; cpus is that of
// [Halves]. With fewer than two cores to choose from all is shared. An error wraps
// [bench.ErrOptions].
func OneCore(client int, servers, cores []int, cpus fs.FS) (Placement, error) {
	if len(cores) < 2 {
		return Placement{Client: cores, Server: cores, Shared: true}, nil
	}
	if client < 0 {
		client = cores[0]
		if i := slices.IndexFunc(cores, func(core int) bool { return !slices.Contains(servers, core) }); i >= 0 {
			client = cores[i]
		}
	}
	if err := CheckCores(append([]int{client}, servers...), cores); err != nil {
		return Placement{}, err
	}
	if slices.Contains(servers, client) {
		return Placement{}, fmt.Errorf("%w: core %d is the client's and cannot be the servers'", bench.ErrOptions, client)
	}
	if len(servers) == 0 {
		servers = beside(client, cores, cpus)
	}
	return Placement{Client: []int{client}, Server: servers}, nil
}

// beside returns the cores that share nothing with one of them, or all others if each
// shares something.
func beside(core int, cores []int, cpus fs.FS) []int {
	others := slices.DeleteFunc(slices.Clone(cores), func(other int) bool { return other == core })
	first := firstSibling(core, cpus)
	apart := slices.DeleteFunc(slices.Clone(others), func(other int) bool { return firstSibling(other, cpus) == first })
	if len(apart) == 0 {
		return others
	}
	return apart
}
