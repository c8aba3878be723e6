package scale

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/process"
)

// plan is what is measured, and where.
type plan struct {
	process.Placement
	loops       []int
	connections []int
	rounds      int
	each        time.Duration // of a run
}

// planFor makes the plan for a process that may have so many connections.
func (o Options) planFor(where process.Placement, mostConnections int) plan {
	p := plan{Placement: where, rounds: o.Rounds, loops: o.Loops, connections: o.Connections, each: o.Duration}
	if p.loops == nil {
		p.loops = powers(2, max(len(p.Server), 1))
		if last := len(p.Server); last > p.loops[len(p.loops)-1] {
			p.loops = append(p.loops, last)
		}
	}
	slices.Sort(p.loops)
	p.loops = slices.Compact(p.loops)
	if most := min(MaxConnections, mostConnections); p.connections == nil {
		if p.connections = powers(2, most); p.runs() > manyRuns {
			p.connections = powers(4, most)
		}
	}
	slices.Sort(p.connections)
	p.connections = slices.Compact(p.connections)
	if p.each == 0 {
		p.each = budget/time.Duration(p.runs()) - overhead
		for _, n := range p.connections {
			p.each -= warmupFor(n) / time.Duration(len(p.connections))
		}
		p.each = min(max(p.each, leastDuration), time.Second)
	}
	return p
}

// runs returns how many runs of package load it takes.
func (p plan) runs() int { return p.rounds * len(p.loops) * len(p.connections) }

// pointKey tells the points apart.
type pointKey struct{ loops, connections int }

// keys returns those of all points, by loops and then by connections.
func (p plan) keys() []pointKey {
	var all []pointKey
	for _, loops := range p.loops {
		for _, connections := range p.connections {
			all = append(all, pointKey{loops, connections})
		}
	}
	return all
}

// order returns the points in the order of a round. The same seed gives the same.
func (p plan) order(seed uint64, round int) []pointKey {
	all := p.keys()
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// notes says what limits the meaning of the figures.
func (p plan) notes(mostConnections int) []string {
	var notes []string
	if p.Shared {
		notes = append(notes, "client and server share the cores: what loops add means nothing, and there is no slope; it takes three cores")
	}
	if most := p.connections[len(p.connections)-1]; most > mostConnections {
		notes = append(notes, fmt.Sprintf("%d connections may be more than the limit of open files allows, which is %d; raise it (ulimit -n)", most, mostConnections))
	} else if mostConnections < MaxConnections {
		notes = append(notes, fmt.Sprintf("the limit of open files allows %d connections; raise it (ulimit -n) for more", mostConnections))
	}
	if most := p.loops[len(p.loops)-1]; !p.Shared && most > len(p.Server) {
		notes = append(notes, fmt.Sprintf("%s have only %s: the slope leaves them out", loopsName(most), coresName(len(p.Server))))
	}
	return notes
}

// powers returns the powers of base from 1 up to most.
func powers(base, most int) []int {
	var numbers []int
	for n := 1; n <= most; n *= base {
		numbers = append(numbers, n)
	}
	return numbers
}
