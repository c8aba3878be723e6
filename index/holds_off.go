//go:build !hitline_holds

package index

import "sync"

// The locks of an index are those of package sync. Builds with the tag hitline_holds
// record how long each is held, and what is touched meanwhile: see holds_on.go. The
// functions that count are empty here and vanish.
//
// What is counted: under writing the units of work.go, and what else grows with the
// index; under mu slots, heads and cells of the directory; under touchMu stretches.

type mutex struct{ sync.Mutex }

// watch adds a counter to what is counted. Each hold sets it to 0 when it begins.
func (*mutex) watch(*int) {}

// count adds to what the hold under way has touched.
func (*mutex) count(int) {}

type rwMutex struct{ sync.RWMutex }

// count adds to what the hold for writing has touched.
func (*rwMutex) count(int) {}

// countRead adds to what the holds for reading have touched.
func (*rwMutex) countRead(int) {}
