package lookup

import (
	"sort"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
)

// rankRun is the coverage of the positions [from, to) of a group set, counted from the lookup's start.
// Some group has their blocks on some of its ranks only. An explanation keeps the runs to say which rank lacks a
// block.
type rankRun struct {
	from, to int32
	coverage *index.Coverage
}

// maxRankRuns bounds the runs of an explanation to 1 MiB. Of blocks beyond it the missing rank
// is not told. The blocks of a chain that a rank lacks are one run, or a few.
const maxRankRuns = 1 << 16

// addRankRun appends n positions from the scan's on.
func (q *Query) addRankRun(scan *groupScan, n int, coverage *index.Coverage) {
	from := int32(scan.position - scan.first)
	to := from + int32(n)
	if last := len(scan.rankRuns) - 1; last >= 0 && scan.rankRuns[last].to == from && scan.rankRuns[last].coverage == coverage {
		scan.rankRuns[last].to = to
		return
	}
	if len(scan.rankRuns) < maxRankRuns/len(q.scans) {
		scan.rankRuns = append(scan.rankRuns, rankRun{from, to, coverage})
	}
}

// setMissingRanks sets the missing rank of each group of an explanation.
func (q *Query) setMissingRanks(ends []coordinator.GroupEnd) {
	for i := range q.scans {
		scan := &q.scans[i]
		for _, g := range scan.groups {
			at := q.memory.coord.FirstMissingPosition(&ends[g])
			if coverage := scan.coverageAt(at); coverage != nil {
				required := q.memory.required[g]
				q.memory.coord.SetMissingRank(&ends[g], func(i int) bool { return coverage.Holds(required[i]) })
			}
		}
	}
}

// coverageAt returns the coverage of the run with a position, nil if there is none.
func (scan *groupScan) coverageAt(position int) *index.Coverage {
	position -= scan.first
	i := sort.Search(len(scan.rankRuns), func(i int) bool { return int(scan.rankRuns[i].to) > position })
	if i == len(scan.rankRuns) || int(scan.rankRuns[i].from) > position {
		return nil
	}
	return scan.rankRuns[i].coverage
}
