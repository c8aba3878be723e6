package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkEqualPrefixCold compares chains of 8,192 hashes, in random order, that lie in a
// log larger than any cache, with the same chains as requests: request=hot one request
// again and again, as it is when it has just been received; request=cold one of as many
// bytes as the log. With pages=huge the log is on pages of 2 MiB, where the kernel has them.
//
// It reports the time of one hash. Medians of interleaved runs are in the generator, where
// they were used to choose the prefetch.
func BenchmarkEqualPrefixCold(b *testing.B) {
	const size, chain = 320 << 20, 8192 * benchHashLen
	if testing.Short() {
		b.Skip("it takes 640 MiB")
	}
	mapped := func(b *testing.B, huge bool) []byte {
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { _ = unix.Munmap(mem) })
		if huge && unix.Madvise(mem, unix.MADV_HUGEPAGE) != nil {
			b.Skip("no huge pages")
		}
		return mem
	}
	source := rand.NewChaCha8([32]byte{1})
	one := make([]byte, chain)
	source.Read(one)
	for _, pages := range []string{"small", "huge"} {
		for _, request := range []string{"hot", "cold"} {
			b.Run(fmt.Sprintf("pages=%s/request=%s", pages, request), func(b *testing.B) {
				log, requests := mapped(b, pages == "huge"), one
				if request == "cold" {
					requests = mapped(b, false)
				}
				for at := 0; at < size; at += chain {
					copy(log[at:], one)
					copy(requests[at%len(requests):], one)
				}
				order := rand.New(source).Perm(size / chain)
				eachKernel(b, func(b *testing.B) {
					turn := 0
					for b.Loop() {
						at := order[turn%len(order)] * chain
						turn++
						benchSink = EqualPrefix(log[at:at+chain], requests[at%len(requests):][:chain], benchHashLen)
					}
					if benchSink != chain/benchHashLen {
						b.Fatalf("got %d equal hashes", benchSink)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(chain/benchHashLen), "ns/hash")
				})
			})
		}
	}
}
