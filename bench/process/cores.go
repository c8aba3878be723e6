package process

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// Placement says which cores the two sides of a measurement have, by the system's
// numbers.
type Placement struct {
	Client []int `json:"client_cores"`
	Server []int `json:"server_cores"`
	Shared bool  `json:"shared_cores"` // both sides have the same cores
}

// SystemCPUs returns the directory in which Linux describes its CPUs, for [Halves].
func SystemCPUs() fs.FS { return os.DirFS("/sys/devices/system/cpu") }

// Halves gives each side half of the cores, which are those that this process may run
// on; of an odd number the server has one more. Hyper-threads of one core share its
// units, so they stay on one side, unless there is no other core. A single processor
// is shared, and so is everything if no cores are known.
//
// In the directory cpus, cpuN/topology/thread_siblings_list names the hyper-threads that
// share a core with N. Without that file N counts as a core of its own.
func Halves(cores []int, cpus fs.FS) Placement {
	if len(cores) < 2 {
		return Placement{Client: cores, Server: cores, Shared: true}
	}
	first := map[int]int{} // by core: the least of its hyper-threads
	for _, core := range cores {
		first[core] = firstSibling(core, cpus)
	}
	sorted := slices.Clone(cores)
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(a, b)) })
	half := len(sorted) / 2
	at, distance := half, len(sorted)
	for i := 1; i < len(sorted); i++ {
		if d := max(2*i-len(sorted), len(sorted)-2*i); first[sorted[i-1]] != first[sorted[i]] && d < distance {
			at, distance = i, d
		}
	}
	return Placement{Client: sorted[:at:at], Server: sorted[at:]}
}

// Place gives each side the cores that it is named, of those that this process may run on. A side
// without a name gets all but the other's and their hyper-threads, or these too if there are no
// others; if neither has one, each gets half. Nothing is pinned if a side is named all cores, or
// if there are fewer than two. cpus is that of [Halves]. An error wraps [measure.ErrOptions].
func Place(client, server, cores []int, cpus fs.FS) (Placement, error) {
	if err := CheckCores(slices.Concat(client, server), cores); err != nil {
		return Placement{}, err
	}
	most, least := max(len(client), len(server)), min(len(client), len(server))
	if len(cores) < 2 || most == len(cores) && (least == 0 || least == most) {
		return Placement{Client: cores, Server: cores, Shared: true}, nil
	}
	for _, core := range client {
		if slices.Contains(server, core) {
			return Placement{}, fmt.Errorf("%w: core %d is the client's and the server's; give each side cores of its own, or both any", measure.ErrOptions, core)
		}
	}
	switch {
	case most == 0:
		return Halves(cores, cpus), nil
	case len(client) == 0:
		client = otherCores(server, cores, cpus)
	case len(server) == 0:
		server = otherCores(client, cores, cpus)
	}
	return Placement{Client: client, Server: server}, nil
}

// otherCores returns the cores that are not hyper-threads of the given ones, or all but
// the given ones if there are none such.
func otherCores(given, cores []int, cpus fs.FS) []int {
	others := slices.DeleteFunc(slices.Clone(cores), func(core int) bool { return slices.Contains(given, core) })
	apart := slices.DeleteFunc(slices.Clone(others), func(core int) bool {
		return slices.ContainsFunc(given, func(g int) bool { return firstSibling(g, cpus) == firstSibling(core, cpus) })
	})
	if len(apart) == 0 {
		return others
	}
	return apart
}

// firstSibling returns the least of the hyper-threads that share a core with this one.
func firstSibling(core int, cpus fs.FS) int {
	text, err := fs.ReadFile(cpus, fmt.Sprintf("cpu%d/topology/thread_siblings_list", core))
	if err != nil {
		return core
	}
	number, _, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(string(text), "-", ",")), ",")
	n, err := strconv.Atoi(number)
	if err != nil {
		return core
	}
	return n
}

// maxCore is the largest number of a core that the kernel's call for pinning takes.
const maxCore = 1023

// AnyCore is the list of all cores that this process may run on.
const AnyCore = "any"

// ParseCores returns the cores of a list such as "0,2-3", by the system's numbers and sorted, or
// of [AnyCore]. An error, also if this process may not run on one of them, wraps
// [measure.ErrOptions].
func ParseCores(list string) ([]int, error) {
	allowed, err := Cores()
	if err != nil || list == AnyCore {
		return allowed, err
	}
	cores, err := parseList(list)
	if err != nil {
		return nil, err
	}
	return cores, CheckCores(cores, allowed)
}

// parseList returns the numbers of a list, the way that taskset(1) takes it, sorted and without
// repetitions.
func parseList(list string) ([]int, error) {
	var cores []int
	for part := range strings.SplitSeq(list, ",") {
		least, most, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(strings.TrimSpace(least))
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(strings.TrimSpace(most))
		}
		if err != nil || from < 0 || to < from || to > maxCore {
			return nil, fmt.Errorf("%w: cores %q; give %s, or a list of numbers from 0 to %d such as 0,2-3", measure.ErrOptions, list, AnyCore, maxCore)
		}
		for core := from; core <= to; core++ {
			cores = append(cores, core)
		}
	}
	slices.Sort(cores)
	return slices.Compact(cores), nil
}

// CheckCores returns an error that wraps [measure.ErrOptions] if one of the cores is
// not among the allowed ones. The kernel ignores such cores without an error.
func CheckCores(cores, allowed []int) error {
	for _, core := range cores {
		if !slices.Contains(allowed, core) {
			return fmt.Errorf("%w: core %d is not among those that this process may run on, %v", measure.ErrOptions, core, allowed)
		}
	}
	return nil
}

// PinClient lets this process run on the client's cores only, with as many threads
// of Go code, until undo is called. With shared cores it does nothing.
func (p Placement) PinClient() (undo func(), err error) {
	if p.Shared {
		return func() {}, nil
	}
	before, err := Cores()
	if err != nil {
		return nil, err
	}
	if err := Pin(p.Client...); err != nil {
		return nil, err
	}
	procs := runtime.GOMAXPROCS(len(p.Client))
	return func() {
		_ = Pin(before...) // it was allowed before
		runtime.GOMAXPROCS(procs)
	}, nil
}

// ClientCores returns the cores of programs on the client's side, for [Options.Cores]: none if
// they are shared.
func (p Placement) ClientCores() []int {
	if p.Shared {
		return nil
	}
	return p.Client
}

// ServerCores is ClientCores of the other side.
func (p Placement) ServerCores() []int {
	if p.Shared {
		return nil
	}
	return p.Server
}

// String returns one line for people.
func (p Placement) String() string {
	switch {
	case p.Shared && len(p.Server) == 0:
		return "not pinned"
	case p.Shared:
		return fmt.Sprintf("client and server share %v", p.Server)
	}
	return fmt.Sprintf("client %v, server %v", p.Client, p.Server)
}
