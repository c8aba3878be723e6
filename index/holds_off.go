//go:build !hitline_holds

package index

import "sync"

// The locks of an index are those of package sync. Builds with the tag hitline_holds
// record how long each is held, and for how much: see holds_on.go. The functions that
// count are empty here and vanish.

type mutex struct{ sync.Mutex }

// watch says where the work of a hold is counted.
func (*mutex) watch(*int) {}

// count adds what the hold under way has touched.
func (*mutex) count(int) {}

type rwMutex struct{ sync.RWMutex }

// count adds what the hold for writing has touched.
func (*rwMutex) count(int) {}

// countRead adds what a hold for reading has touched.
func (*rwMutex) countRead(int) {}
