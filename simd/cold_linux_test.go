package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkEqualPrefixCold compares chains of 8,192 hashes, in random order, that lie in a
// log larger than any cache, with equal requests. request=hot uses one request again and
// again, so it is cached as if just received. request=cold reads requests from an array as
// large as the log. pages=huge maps the log on pages of 2 MiB, if the kernel supports them.
//
// It reports the time per hash. The generator's comments have medians of interleaved runs,
// by which the prefetch was chosen.
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
				forEachKernel(b, func(b *testing.B) {
					i := 0
					for b.Loop() {
						at := order[i%len(order)] * chain
						i++
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
