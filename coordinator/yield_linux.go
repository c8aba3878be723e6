package coordinator

import "golang.org/x/sys/unix"

// yieldCore lets a thread that waits for this processor have it. Go's scheduler, which
// runtime.Gosched asks, knows nothing of the threads that the kernel lets wait.
func yieldCore() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
