//go:build linux

package compare

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// spaced returns text with one space in place of several.
func spaced(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

func TestReportTable(t *testing.T) {
	one := measure.Spread{Median: 1, Min: 1, Max: 1}
	times := measure.Times{P50: 12.3, Rounds: measure.Spread{Median: 12, Min: 11, Max: 14}, P99: 20, Max: 99, Requests: 7000}
	row := Row{
		Rival: Hitline, Version: "v1", Note: "raw", Hashes: 64,
		Times: times, Ratio: one,
	}
	raw := row
	raw.Rival, raw.Note = RawSocket, ""
	slow := row
	slow.Rival, slow.Version, slow.Note, slow.P50, slow.Ratio.Median, slow.Wrong = Python, "v2", "", 123, 10, 3
	r := Report{
		Rounds: 5, Chains: []int{20}, HitShare: 1, Entries: 9, Placement: process.Placement{Client: []int{0}, Server: []int{1}}, Rows: []Row{raw, row, slow},
		Skipped: []Skipped{{Rival: Python, Why: "it is not here"}}, Wrong: 3,
	}
	var table strings.Builder
	assert.NoError(t, r.WriteTable(&table))
	setup, rest, _ := strings.Cut(spaced(table.String()), "\n")
	assert.Equal(t, spaced("setup "+r.Setup.String()), setup)
	assert.Equal(t, `chains 5 rounds over [20]; 9 hashes stored; 100 % hit whole
cores client [0], server [1]

64 hashes; ratios to hitline
p50 us of the rounds p99 us max us ratio to raw requests wrong
raw 12.30 11.00 to 14.00 20.00 99.00 1.000 (1.000 to 1.000) 7,000 0
hitline 12.30 11.00 to 14.00 20.00 99.00 1.000 (1.000 to 1.000) 7,000 0
python-zmq 123.00 11.00 to 14.00 20.00 99.00 10.000 (1.000 to 1.000) 7,000 3

raw v1
hitline v1; raw
python-zmq v2
python-zmq skipped: it is not here
wrong 3
`, rest)

	row.ToRaw = measure.Spread{Median: 1.1, Min: 1, Max: 1.2}
	row.Rate, row.RateToRaw = measure.Spread{Median: 2000}, measure.Spread{Median: 0.5, Min: 0.4, Max: 0.6}
	table.Reset()
	assert.NoError(t, Report{
		Pipeline: 8, Partial: true, Placement: process.Placement{Shared: true}, Rows: []Row{raw, row},
	}.WriteTable(&table))
	text := spaced(table.String())
	for _, want := range []string{
		"cores not pinned\npartial: ", "wrong pipelined/s to raw\n", "1.100 (1.000 to 1.200)", " 7,000 0 2,000 0.500 (0.400 to 0.600)\n",
	} {
		assert.Contains(t, text, want)
	}
}
