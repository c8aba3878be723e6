//go:build hitline_interleave

package index

import (
	"sync"
	"sync/atomic"
)

// interleave, if it is not nil, performs each operation of the types below, when its turn has
// come, and returns the result. It is set while a test runs goroutines one at a time.
var interleave func(o operation) int64

// Bounds that the tests of interleavings lower.
var (
	gateTries = usualGateTries
	holdWork  = usualHoldWork
)

// operation is what a goroutine is about to do.
type operation struct {
	action action
	object any // a pointer to one of the types below
	value  int64
}

type action uint8

const (
	actLoad action = iota
	actStore
	actAdd
	actLock
	actTryLock
	actUnlock
	actSend
	actWait
)

// do performs the operation, or has it performed.
func do(a action, object any, value int64) int64 {
	o := operation{a, object, value}
	if interleave != nil {
		return interleave(o)
	}
	return o.perform()
}

// perform performs the operation and returns its result.
func (o operation) perform() int64 {
	switch v := o.object.(type) {
	case *syncBool:
		if o.action == actLoad {
			return truth(v.value.Load())
		}
		v.value.Store(o.value != 0)
	case *syncInt32:
		if o.action == actLoad {
			return int64(v.value.Load())
		}
		return int64(v.value.Add(int32(o.value)))
	case *syncUint64:
		if o.action == actLoad {
			return int64(v.value.Load())
		}
		return int64(v.value.Add(uint64(o.value)))
	case *syncMutex:
		switch o.action {
		case actLock:
			v.mutex.Lock()
			v.held = true
		case actTryLock:
			if !v.mutex.TryLock() {
				return 0
			}
			v.held = true
			return 1
		default:
			v.held = false
			v.mutex.Unlock()
		}
	case *wakeup:
		if o.action == actWait {
			<-v.sent
			return 0
		}
		select {
		case v.sent <- struct{}{}:
		default:
		}
	}
	return 0
}

// waits reports whether the operation would block. Goroutines run one at a time.
func (o operation) waits() bool {
	switch v := o.object.(type) {
	case *syncMutex:
		return o.action == actLock && v.held
	case *wakeup:
		return o.action == actWait && len(v.sent) == 0
	}
	return false
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

type syncBool struct{ value atomic.Bool }

func (b *syncBool) Load() bool   { return do(actLoad, b, 0) != 0 }
func (b *syncBool) Store(v bool) { do(actStore, b, truth(v)) }
func (b *syncBool) Swap(v bool)  { b.Store(v) }

type syncInt32 struct{ value atomic.Int32 }

func (i *syncInt32) Load() int32           { return int32(do(actLoad, i, 0)) }
func (i *syncInt32) Add(delta int32) int32 { return int32(do(actAdd, i, int64(delta))) }

type syncUint64 struct{ value atomic.Uint64 }

func (u *syncUint64) Load() uint64            { return uint64(do(actLoad, u, 0)) }
func (u *syncUint64) Add(delta uint64) uint64 { return uint64(do(actAdd, u, int64(delta))) }

type syncMutex struct {
	mutex sync.Mutex
	held  bool // guarded by mutex
}

func (m *syncMutex) Lock()         { do(actLock, m, 0) }
func (m *syncMutex) TryLock() bool { return do(actTryLock, m, 0) != 0 }
func (m *syncMutex) Unlock()       { do(actUnlock, m, 0) }

type wakeup struct{ sent chan struct{} }

func newWakeup() wakeup { return wakeup{make(chan struct{}, 1)} }

func (w *wakeup) send() { do(actSend, w, 0) }
func (w *wakeup) wait() { do(actWait, w, 0) }
