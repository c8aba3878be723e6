//go:build !purego

package simd

// useNEON says that the NEON kernel is in use. Every processor that runs Go's arm64 code
// has it. It is written by useKernel and read by every call.
var useNEON = true

// blockNEON is the length, in bytes, of the blocks of the NEON kernels.
//
// The kernels were counted and not timed, as no arm64 machine was at hand. Instructions of
// one turn, NEON and the portable Go for the same work (go tool objdump, Go 1.26): a block
// of two runs 15 and 54, a block of one run 14 and 42, two strided hashes 17 and 62, the
// tags of one bucket 13 and 49.
const blockNEON = 64

// equalBytes returns the number of leading bytes that are equal in a and b, which have one
// length.
func equalBytes(a, b []byte) int {
	i := 0
	if n := len(a) &^ (blockNEON - 1); useNEON && n > 0 {
		i = equalBlocksNEON(&a[0], &b[0], n)
	}
	return i + equalBytesGeneric(a[i:], b[i:])
}

// runBytes is runBytesGeneric with the kernel in use.
func runBytes(b []byte) int {
	n := len(b) &^ (blockNEON - 1)
	if !useNEON || n == 0 {
		return runBytesGeneric(b)
	}
	i := runBlocksNEON(&b[0], n)
	if i == len(b) {
		return i
	}
	if i > 0 {
		// The element before is one of the run, which makes a run of what follows it.
		i -= 2
	}
	return i + runBytesGeneric(b[i:])
}

// equalStrided is equalStridedGeneric with the kernel in use.
func equalStrided(a []byte, aStep int, b []byte, bStep int, hashLen, n int) int {
	k := 0
	if useNEON && hashLen == 32 && n >= 2 {
		k = 2 * equalPairs32NEON(&a[0], aStep, &b[0], bStep, n/2)
		if k == n {
			return n
		}
	}
	return k + equalStridedGeneric(a[k*aStep:], aStep, b[k*bStep:], bStep, hashLen, n-k)
}

// matchTags is matchTagsGeneric with the kernel in use.
func matchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if useNEON {
		matchTagsNEON(&masks[0], &buckets[0], &tags[0], len(tags))
		return
	}
	matchTagsGeneric(masks, buckets, tags)
}

// availableKernels names the kernels of this build that this processor can run, best first.
func availableKernels() []string { return []string{kernelNEON, kernelGeneric} }

// currentKernel names the kernel in use.
func currentKernel() string {
	if useNEON {
		return kernelNEON
	}
	return kernelGeneric
}

// useKernel switches to a kernel that availableKernels names.
func useKernel(name string) {
	useNEON = name == kernelNEON
}
