//go:build !hitline_holds

package index

// Builds with the tag hitline_holds record how long each lock is held, and what is touched
// meanwhile: see holds_on.go. The functions that record are empty here and vanish.
//
// What is counted: under writing the units of work.go, and the elements of lists that are
// copied; under mu slots, heads and cells of the directory; under mu for reading the units of
// work.go; under touchMu stretches. TestHoldsAreBounded has the bounds.

// holds are those of one lock.
type holds struct{}

func (*holds) begin() {}
func (*holds) end()   {}

// watch adds a counter to what is counted. Each hold sets it to 0 when it begins.
func (*holds) watch(*int) {}

// count adds to what the hold under way has touched.
func (*holds) count(int) {}

// readHolds are those of the lookups that use one stripe of a gate.
type readHolds struct{}

func (*readHolds) beginRead() {}
func (*readHolds) endRead()   {}

// countRead adds to what the holds under way have touched.
func (*readHolds) countRead(int) {}
