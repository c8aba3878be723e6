package scale

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// plan is what is measured, and where.
type plan struct {
	client, server []int // cores; the same if shared
	shared         bool
	loops          []int
	connections    []int
	each           time.Duration
}

// leastCores is how many cores it takes to give either side some of its own.
const leastCores = 4

// planFor makes the plan for a process that may run on these cores, and have so
// many connections. The cores are in the order of split.
func (o Options) planFor(cores []int, mostConnections int) plan {
	p := plan{client: cores, server: cores, shared: len(cores) < cmp.Or(o.leastCores, leastCores), loops: o.Loops, connections: o.Connections, each: o.Duration}
	if !p.shared {
		half := len(cores) / 2
		p.client, p.server = cores[:half], cores[half:]
	}
	if p.loops == nil {
		p.loops = doubling(max(len(p.server), 1))
		if last := len(p.server); last > p.loops[len(p.loops)-1] {
			p.loops = append(p.loops, last)
		}
	}
	if p.connections == nil {
		p.connections = doubling(min(MaxConnections, mostConnections))
	}
	slices.Sort(p.loops)
	slices.Sort(p.connections)
	p.loops, p.connections = slices.Compact(p.loops), slices.Compact(p.connections)
	if p.each == 0 {
		p.each = budget/time.Duration(p.points()) - overhead
		for _, n := range p.connections {
			p.each -= warmupFor(n) / time.Duration(len(p.connections))
		}
		p.each = min(max(p.each, 200*time.Millisecond), time.Second)
	}
	return p
}

func (p plan) points() int { return len(p.loops) * len(p.connections) }

// notes says what limits the meaning of the figures.
func (p plan) notes(mostConnections int) []string {
	var notes []string
	if p.shared {
		notes = append(notes, fmt.Sprintf("client and server share the cores, of which there are %d: the slope over loops means nothing, and is left out; it takes %d",
			len(p.server), leastCores))
	}
	if most := p.connections[len(p.connections)-1]; most > mostConnections {
		notes = append(notes, fmt.Sprintf("%d connections may be more than the limit of open files allows, which is %d; raise it (ulimit -n)", most, mostConnections))
	} else if mostConnections < MaxConnections {
		notes = append(notes, fmt.Sprintf("the limit of open files allows %d connections; raise it (ulimit -n) for more", mostConnections))
	}
	if most := p.loops[len(p.loops)-1]; !p.shared && most > len(p.server) {
		notes = append(notes, fmt.Sprintf("%d loops have only %d cores", most, len(p.server)))
	}
	return notes
}

// doubling returns the powers of two up to most.
func doubling(most int) []int {
	var numbers []int
	for n := 1; n <= most; n *= 2 {
		numbers = append(numbers, n)
	}
	return numbers
}

// split sorts cores so that the threads of one core, which share its units, are
// neighbours. The directory is that of the system's CPUs; a core that it does not
// know stands for itself.
func split(cores []int, cpus fs.FS) []int {
	first := map[int]int{} // of the threads of the core
	for _, core := range cores {
		first[core] = core
		text, err := fs.ReadFile(cpus, fmt.Sprintf("cpu%d/topology/thread_siblings_list", core))
		if err != nil {
			continue
		}
		number, _, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(string(text), "-", ",")), ",")
		if n, err := strconv.Atoi(number); err == nil {
			first[core] = n
		}
	}
	sorted := slices.Clone(cores)
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(a, b)) })
	return sorted
}
