// Package simd holds the batch kernels on block hashes: each in portable Go, and again in
// vector instructions where that was measured to be faster.
//
// # Terms
//
// A hash is an opaque string of 1 byte or more; all hashes of one array have the same
// length. An array of hashes is a plain []byte with one hash after the other and nothing
// between. A kernel is one implementation of the functions here; it has a name:
//
//	generic   portable Go on 64-bit words: every machine, every build
//	avx2      32-byte vectors: amd64 processors with AVX2
//	neon      16-byte vectors: every arm64 processor
//
// # What the kernels do
//
// A lookup sends a chain of hashes, and chains lie in the index in the order in which they
// were stored. So most of the work of a lookup is to compare a run of received hashes with
// a run of stored ones, and to learn where they part:
//
//	received  h0 h1 h2 h3 h4 h5 …
//	stored    h0 h1 h2 h3 x4 x5 …      EqualPrefix = 4
//
// [EqualPrefixStrided] asks the same of arrays with gaps, [RunLength16] how far a run of
// one small number goes, which is how the index says who holds a run of hashes, and
// [MatchTags] probes the buckets of a hash table, for where a chain starts.
//
// Functions take whole runs or batches, never single hashes: a call into assembly cannot be
// inlined, and a call for each hash costs more than the vectors gain.
//
// # Choice of the kernel
//
// The kernel is chosen once, when the package is initialised, from what the processor can
// do. [Force] replaces the choice at start-up and [ForceFromEnv] does so from the
// environment. The build tag purego leaves all assembly out.
//
// # Rules
//
// Kernels keep and allocate nothing, change nothing but what they are given for results,
// read nothing outside of the slices that they were given, and have no alignment
// requirements. All functions but Force and ForceFromEnv may be called from any number of
// goroutines. What is passed must not be written to during the call; under the race
// detector, which cannot look into assembly, each call announces what it reads and writes.
//
// # Adding a kernel
//
// A function is a family of files: the public one and its portable version (equalprefix.go)
// and its generator for amd64 (_gen/equalprefix.go). The kernels of all functions that one
// architecture has are together: the dispatch (dispatch_amd64.go, dispatch_arm64.go, and
// dispatch_noasm.go for the complement of all such architectures), and the assembly with
// its declarations (kernels_avx2_amd64.s, generated; kernels_neon_arm64.s, by hand). Every
// test runs once for each kernel that [Kernels] names; those of arm64 run under qemu
// elsewhere. A kernel that does not beat the portable version is deleted: by time, measured
// and written down where it is chosen, or for arm64 by the count of instructions, as long
// as there is no machine to measure on.
package simd

// The generator is a module of its own, in _gen. It says how the AVX2 kernels work; the files
// that it writes are checked in and never edited.
//
//go:generate go run -C _gen . -out ../kernels_avx2_amd64.s -stubs ../kernels_avx2_amd64.go -pkg simd
