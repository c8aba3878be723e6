package measure

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// Memory is what this process holds, in bytes: objects on the heap, and what is mapped
// outside it. The latter is the process's anonymous memory that the Go runtime does not
// account for.
type Memory struct {
	heap     int64 // objects, those not yet collected too
	resident int64 // anonymous memory of the process, 0 if the system does not tell
	runtime  int64 // of that, what the Go runtime accounts for
}

// MemoryNow takes a reading without waiting for anything. The kernel is asked first, so
// that what the runtime takes meanwhile does not count as mapped outside it.
func MemoryNow() Memory {
	m := Memory{resident: residentAnonymous()}
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	m.heap = int64(samples[0].Value.Uint64())
	m.runtime = int64(samples[1].Value.Uint64() - samples[2].Value.Uint64())
	return m
}

// SettledMemory collects all garbage and gives free pages back before it takes a reading. That
// leaves an error of a few MiB in what is mapped, always downward.
func SettledMemory() Memory {
	runtime.GC()
	runtime.GC() // the first may only have finished what was under way
	debug.FreeOSMemory()
	return MemoryNow()
}

// mapped returns how much of the growth since before lies outside the Go runtime.
func (m Memory) mapped(before Memory) int64 {
	return max(0, m.resident-before.resident-(m.runtime-before.runtime))
}

// Since returns the growth since before, mapped memory included.
func (m Memory) Since(before Memory) int64 {
	return m.heap - before.heap + m.mapped(before)
}

// residentAnonymous reads the anonymous memory of this process from the kernel. It
// returns 0 on a system that does not tell; then only the heap is counted.
func residentAnonymous() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("RssAnon:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	kib, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
