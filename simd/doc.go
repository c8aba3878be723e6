// Package simd has the batch kernels on block hashes: each in portable Go, and in vector
// instructions where a measurement showed a gain. No promise: it is internal to this module, and
// its API may change in any release.
//
// # Functions
//
// A lookup sends a chain of hashes. The index keeps chains in the order in which they were
// stored. So most of the work of a lookup is to compare received hashes with stored ones
// and to find the first difference:
//
//	received  h0 h1 h2 h3 h4 h5 …
//	stored    h0 h1 h2 h3 x4 x5 …      EqualPrefix = 4
//
// The functions are:
//
//   - [EqualPrefix] compares two arrays of hashes.
//   - [MatchTags] probes the buckets of a hash table, to find where a chain starts.
//   - [Prefetch] starts to fetch cache lines that are used later.
//   - [DigestSecret.Sum] digests up to 64 hashes with a secret. Where the digest of stored
//     hashes is kept, a comparison reads 16 bytes of them.
//
// Each function takes a whole array or batch: a call into assembly cannot be inlined, and
// one call per hash would cost more than the vectors gain.
//
// # Glossary
//
//   - hash: an opaque string of 1 byte or more. All hashes of one array have one length.
//   - array of hashes: a []byte of hashes end to end.
//   - kernel: one implementation of the functions of this package.
//
// These are the kernels and their names:
//
//	generic   portable Go on 64-bit words: every machine, every build
//	avx512    64-byte vectors for digests, else as avx2: amd64 processors with AVX-512
//	          (F, BW) and VPCLMULQDQ, such as Ice Lake and Zen 4
//	avx2      32-byte vectors: amd64 processors with AVX2
//	neon      16-byte vectors: every arm64 processor
//
// # Choice of the kernel
//
// Package initialisation chooses the kernel, by what the processor supports. [Force] and
// [ForceFromEnv] replace that choice when a program starts. The build tag purego and the
// race detector, which sees reads of Go code only, remove all assembly.
//
// # Invariants
//
//   - Kernels allocate nothing and retain nothing. They write only to the result slices.
//   - They read no byte outside of the slices that they are passed. They may prefetch some,
//     which has no effect but on caches.
//   - They have no alignment requirements.
//   - All functions but Force and ForceFromEnv are safe for concurrent use, those of one
//     DigestSecret too.
//   - Callers must not write to the arguments during a call.
//
// # Adding a kernel
//
// Each function has one file with its public and its portable version (equalprefix.go), and
// one with its generator for amd64 (_gen/equalprefix.go). Each architecture has one dispatch
// file (dispatch_amd64.go, dispatch_arm64.go) and one assembly file with its declarations:
// kernels_avx2_amd64.s and kernels_avx512_amd64.s are generated, kernels_neon_arm64.s is
// written by hand.
// dispatch_noasm.go serves all other builds.
//
// Every test runs once for each kernel that [Kernels] returns; the arm64 kernel runs under
// qemu on other machines. A kernel that is not faster than the portable version is deleted.
// The measurement is noted where the kernel is chosen. For arm64 the count of instructions
// serves instead, until there is a machine to measure on.
package simd

// The generator is a module of its own, in _gen, and explains how the amd64 kernels work. The
// files that it writes are committed and never edited.
//
//go:generate go run -C _gen . -kernels avx2 -out ../kernels_avx2_amd64.s -stubs ../kernels_avx2_amd64.go -pkg simd
//go:generate go run -C _gen . -kernels avx512 -out ../kernels_avx512_amd64.s -stubs ../kernels_avx512_amd64.go -pkg simd
