package indexbench

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"
)

// samplePeriod is how often memory is looked at while an index is filled.
const samplePeriod = 2 * time.Millisecond

// Memory is what the process holds, in bytes.
type Memory struct {
	heap     int64 // objects
	resident int64 // anonymous memory of the process, 0 where it is not known
	runtime  int64 // of that, what the Go runtime accounts for
}

// SettledMemory collects all garbage and gives free pages back before it looks.
func SettledMemory() Memory {
	runtime.GC()
	runtime.GC() // the first may only have finished what was under way
	debug.FreeOSMemory()
	resident := residentAnonymous()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Memory{int64(m.HeapAlloc), resident, int64(m.Sys - m.HeapReleased)}
}

// mapped is how much of the growth since before lies outside the Go runtime.
func (m Memory) mapped(before Memory) int64 {
	return max(0, m.resident-before.resident-(m.runtime-before.runtime))
}

// Since is the growth since before, mapped memory included.
func (m Memory) Since(before Memory) int64 {
	return m.heap - before.heap + m.mapped(before)
}

// residentAnonymous reads the anonymous memory of this process from the kernel. It
// is 0 on a system that does not tell; then only the heap is counted.
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

// sampler watches memory from a goroutine of its own.
type sampler struct {
	before Memory
	peak   int64 // largest growth seen; read after stop
	stops  chan struct{}
	ended  sync.WaitGroup
}

func startSampler(before Memory) *sampler {
	s := &sampler{before: before, stops: make(chan struct{})}
	s.ended.Go(s.run)
	return s
}

func (s *sampler) run() {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	for {
		s.look(samples)
		select {
		case <-tick.C:
		case <-s.stops:
			s.look(samples)
			return
		}
	}
}

// look takes a sample. The kernel is asked first, so that what the runtime takes
// meanwhile is not held to be mapped beside it.
func (s *sampler) look(samples []metrics.Sample) {
	resident := residentAnonymous()
	metrics.Read(samples)
	total, released := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	now := Memory{int64(samples[0].Value.Uint64()), resident, int64(total - released)}
	s.peak = max(s.peak, now.Since(s.before))
}

// stop ends the watching and returns the peak.
func (s *sampler) stop() int64 {
	close(s.stops)
	s.ended.Wait()
	return s.peak
}
