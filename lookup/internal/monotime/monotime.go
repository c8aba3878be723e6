// Package monotime is a monotonic clock: it does not jump when the time of day is set.
package monotime

import "time"

// start is the zero of the clock.
var start = time.Now()

// Now returns the nanoseconds since the program started, at least 1: 0 can mean never.
func Now() int64 { return int64(time.Since(start)) + 1 }

// At returns Now as of a time that time.Now has returned.
func At(now time.Time) int64 { return int64(now.Sub(start)) + 1 }
