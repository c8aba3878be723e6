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

// shownDifferences bounds how many differing cases a failure prints: the first
// few tell what is wrong, two thousand bury it.
const shownDifferences = 5

// Verdict is the outcome of one case. The zero value is agreement.
type Verdict struct {
	Differs string // how the answer differs from the recorded one
	Skipped string // why the case was not tried
}

// Differs returns the verdict of a case that was answered differently.
func Differs(format string, args ...any) Verdict {
	return Verdict{Differs: fmt.Sprintf(format, args...)}
}

// Skipped returns the verdict of a case that could not be tried. Reasons are
// grouped by their text, so they should not name the case.
func Skipped(reason string) Verdict { return Verdict{Skipped: reason} }

// Run loads the file name, judges each of its cases and reports. C is the form
// of a case.
func Run[C any](tb testing.TB, name string, judge func(c *C) Verdict) {
	tb.Helper()
	var file struct {
		Cases []json.RawMessage `json:"cases"`
	}
	Load(tb, name, &file)
	report := NewReport(tb, name)
	for i, raw := range file.Cases {
		var head struct {
			ID string `json:"id"`
		}
		c := new(C)
		if err := json.Unmarshal(raw, &head); err != nil {
			tb.Fatalf("conformance: %s: case number %d: %v", name, i, err)
		}
		if err := json.Unmarshal(raw, c); err != nil {
			tb.Fatalf("conformance: %s: case %s: %v", name, head.ID, err)
		}
		report.Add(head.ID, judge(c))
	}
	report.Done()
}

// Report counts the verdicts of one file's cases. [Run] uses one by itself;
// make one by hand for a file that does not fit Run. Not safe for concurrent
// use.
type Report struct {
	tb      testing.TB
	out     io.Writer
	name    string
	cases   int
	skips   map[string]int
	differs []string
}

// NewReport starts the report on the file name.
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

// Done prints the report and fails the test if a case differed or if there was
// none.
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
		shown := r.differs[:min(n, shownDifferences)]
		r.tb.Errorf("%s: %d of %d cases differ, the first:\n  %s", r.name, n, r.cases, strings.Join(shown, "\n  "))
	}
}
