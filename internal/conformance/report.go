package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// maxShownDifferences bounds the differing cases that a failure prints. The first few tell
// what is wrong; there can be two thousand.
const maxShownDifferences = 5

// Verdict is the result of one case. The zero value means that the answer agrees.
type Verdict struct {
	Differs string // how the answer differs from the recorded one
	Skipped string // why the case was not run
}

// Differs returns the verdict of a case whose answer differs.
func Differs(format string, args ...any) Verdict {
	return Verdict{Differs: fmt.Sprintf(format, args...)}
}

// Skipped returns the verdict of a case that was not run. The report groups reasons by their
// text, so a reason should not name the case.
func Skipped(reason string) Verdict { return Verdict{Skipped: reason} }

// Run loads the file name, calls judge for each of its cases and prints the report. Cases with
// equal hashes are skipped. C is the type of a case.
func Run[C any](tb testing.TB, name string, judge func(c *C) Verdict) {
	tb.Helper()
	var file caseFile
	Load(tb, name, &file)
	runCases(tb, name, file.Cases, judge)
}

// caseFile is what Run reads of a file.
type caseFile struct {
	Cases []json.RawMessage `json:"cases"`
}

// runCases calls judge for each case of the file name and prints the report.
func runCases[C any](tb testing.TB, name string, cases []json.RawMessage, judge func(c *C) Verdict) {
	tb.Helper()
	report := NewReport(tb, name)
	for i, raw := range cases {
		var head struct {
			ID    string         `json:"id"`
			DupOf map[string]int `json:"dup_of"`
		}
		c := new(C)
		if err := json.Unmarshal(raw, &head); err != nil {
			tb.Fatalf("conformance: %s: case number %d: %v", name, i, err)
		}
		if err := json.Unmarshal(raw, c); err != nil {
			tb.Fatalf("conformance: %s: case %s: %v", name, head.ID, err)
		}
		if len(head.DupOf) > 0 {
			report.Add(head.ID, Skipped(equalHashes))
			continue
		}
		report.Add(head.ID, judge(c))
	}
	report.Done()
}

// equalHashes is why cases with "dup_of" are skipped. Some of their hashes are equal, which
// those of a chain never are. The reference keeps what it found as a set of hashes, so a block
// can then count as found at a position where it was not looked up.
const equalHashes = "equal hashes in one request (dup_of), which a chain does not have"

// Report counts the verdicts of the cases of one file. [Run] creates one; a test that does not
// fit Run creates its own. It is not safe for concurrent use.
type Report struct {
	tb      testing.TB
	out     io.Writer
	name    string
	cases   int
	skips   map[string]int // cases by reason
	differs []string       // id and difference
}

// NewReport returns the report of the file name.
func NewReport(tb testing.TB, name string) *Report {
	return &Report{tb: tb, out: os.Stdout, name: name, skips: map[string]int{}}
}

// Add counts the verdict of the case id.
func (r *Report) Add(id string, v Verdict) {
	r.cases++
	switch {
	case v.Skipped != "":
		r.skips[v.Skipped]++
	case v.Differs != "":
		r.differs = append(r.differs, id+": "+v.Differs)
	}
}

// Done prints the report. It fails the test if a case differs or if there is no case.
func (r *Report) Done() {
	r.tb.Helper()
	skipped := 0
	reasons := make([]string, 0, len(r.skips))
	for reason, n := range r.skips {
		skipped += n
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	fmt.Fprintf(r.out, "%s: %d cases, %d skipped, %d differ\n", r.name, r.cases, skipped, len(r.differs))
	for _, reason := range reasons {
		fmt.Fprintf(r.out, "  skipped %d: %s\n", r.skips[reason], reason)
	}
	if r.cases == 0 {
		r.tb.Errorf("%s: no case was judged", r.name)
	}
	if n := len(r.differs); n > 0 {
		shown := r.differs[:min(n, maxShownDifferences)]
		r.tb.Errorf("%s: %d of %d cases differ, the first:\n  %s", r.name, n, r.cases, strings.Join(shown, "\n  "))
	}
}
