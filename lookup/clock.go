package lookup

import "time"

// processStart is what times that are kept in atomics are counted from.
var processStart = time.Now()

// monotonic returns the nanoseconds since the program started, never 0. Unlike the time
// of day it does not jump when the clock is set, so timeouts are measured by it.
func monotonic() int64 { return monotonicAt(time.Now()) }

// monotonicAt is monotonic at a time that time.Now has returned.
func monotonicAt(now time.Time) int64 { return int64(now.Sub(processStart)) + 1 }
