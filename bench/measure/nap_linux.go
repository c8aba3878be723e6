package measure

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// napSlack is how late the kernel may wake a thread, twice over. Only that much
// is spent spinning.
const napSlack = 100 * time.Microsecond

// Nap waits for d or less; called until a moment has come, it meets that within
// microseconds on a machine that is not overloaded.
func Nap(d time.Duration) {
	if d <= napSlack {
		runtime.Gosched()
		return
	}
	rest := unix.NsecToTimespec(int64(d - napSlack))
	_ = unix.Nanosleep(&rest, nil) // cut short by a signal, it is called again
}
