// Package monotime is a clock that does not jump when the time of day is set.
package monotime

import "time"

// start is what the clock counts from.
var start = time.Now()

// Now returns the nanoseconds since the program started, never 0.
func Now() int64 { return At(time.Now()) }

// At is Now at a time that time.Now has returned.
func At(now time.Time) int64 { return int64(now.Sub(start)) + 1 }
