//go:build !linux

package bench

import "time"

// nap waits for d, as exactly as the runtime's timers do.
func nap(d time.Duration) { time.Sleep(d) }
