//go:build !linux

package measure

import "time"

// Nap waits for d, as exactly as the runtime's timers do.
func Nap(d time.Duration) { time.Sleep(d) }
