package lookup

import "golang.org/x/sys/unix"

// schedYield yields the processor to a waiting thread. runtime.Gosched would not: it
// yields to goroutines, and Go's scheduler does not know which threads the kernel lets
// wait.
func schedYield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
