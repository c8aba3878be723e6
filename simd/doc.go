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
//	neon      16-byte vectors, arm64: the name is reserved, there is no such kernel yet
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
// Functions take whole runs, never single hashes: a call into assembly cannot be inlined,
// and a call for each hash costs more than the vectors gain.
//
// # Choice of the kernel
//
// The kernel is chosen once, when the package is initialised, from what the processor can
// do. [Force] replaces the choice at start-up and [ForceFromEnv] does so from the
// environment. The build tag purego leaves all assembly out.
//
// # Rules
//
// Kernels keep, change and allocate nothing, read nothing outside of the slices that they
// were given, and have no alignment requirements. All functions but Force and ForceFromEnv
// may be called from any number of goroutines. The bytes passed must not be written to
// during the call; under the race detector, which cannot look into assembly, each call
// announces what it reads.
//
// # Adding a kernel
//
// A kernel is a family of files: the public function and its portable version
// (equalprefix.go), the dispatch for an architecture (dispatch_amd64.go) and for the
// complement of all such architectures (dispatch_noasm.go), and the generated assembly with
// its declarations. Every test runs once for each kernel that [Kernels] names. A kernel
// that does not beat the portable version is deleted.
package simd

// The generator is a module of its own, in _gen. It says how the kernel works; the files
// that it writes are checked in and never edited.
//
//go:generate go run -C _gen equalprefix.go -out ../equalprefix_avx2_amd64.s -stubs ../equalprefix_avx2_amd64.go -pkg simd
