package process

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/hitline/hitline/bench/measure"
)

// OneCore gives the client one core, and the servers the named ones. A negative client
// stands for the first of cores that is not among servers. If no servers are named,
// they get all cores but the client's and its hyper-threads, or these too if there are
// no others. cpus is that of [Halves]. Fewer than two cores are shared. An error wraps
// [measure.ErrOptions].
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
		return Placement{}, fmt.Errorf("%w: core %d is the client's and cannot be the servers'", measure.ErrOptions, client)
	}
	if len(servers) == 0 {
		servers = otherCores(client, cores, cpus)
	}
	return Placement{Client: []int{client}, Server: servers}, nil
}

// otherCores returns the cores that are not hyper-threads of the given one, or all but
// the given one if there are none such.
func otherCores(core int, cores []int, cpus fs.FS) []int {
	others := slices.DeleteFunc(slices.Clone(cores), func(other int) bool { return other == core })
	first := firstSibling(core, cpus)
	apart := slices.DeleteFunc(slices.Clone(others), func(other int) bool { return firstSibling(other, cpus) == first })
	if len(apart) == 0 {
		return others
	}
	return apart
}
