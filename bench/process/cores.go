//go:build linux

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

// PinClient lets this process run on the client's cores only, with as many threads
// of Go code, until undo is called. With shared cores, or none, it does nothing.
func (p Placement) PinClient() (undo func(), err error) {
	if p.Shared || len(p.Client) == 0 {
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
	case len(p.Server) == 0:
		return "not pinned"
	case p.Shared:
		return fmt.Sprintf("client and server share %v", p.Server)
	}
	return fmt.Sprintf("client %v, server %v", p.Client, p.Server)
}
