// Package conformance reads the recorded vectors and reports how an implementation compares
// with them. It is for tests only.
//
// # Vectors
//
// The vectors are JSON files, recorded from the unmodified reference at three commits, named by
// their dates, and of its releases:
//
//	*.json           2026-06-20
//	later/*.json     2026-08-17
//	docpage/*.json   2026-06-04
//	extra/*.json     further cases of all three, see below
//	releases/*/*     the releases of Releases
//
// A file is named by its path relative to the set, for example "later/find_hit.json". Each
// file has an array "cases". Each case has an "id", which is part of the input: it seeds the
// hashes.
//
// If the environment variable HITLINE_CONFORMANCE is set, it names the directory of the
// files. A relative one is resolved against the module root, so that it means the same in
// every package. Otherwise the files are compressed copies embedded in this package. A file
// that is missing, does not parse or has no case fails the test.
//
// Files below extra/ are always the embedded ones. They were recorded in the same way from
// the wheels of vLLM 0.23.0, 0.24.0 and 0.27.1, which have the rules of 2026-06-04,
// 2026-06-20 and 2026-08-17. The store masks of mamba groups with a retention interval, in
// which 0.24.0 differs, are left out. extra/negative-DATE.json has negative lengths and
// starts.
//
// Vectors that depend on an engine's release alone are in the testdata of the package that
// they test, a file for releases with equal answers; [RunKind] reads them.
//
// # Reports
//
// [Run] judges the cases of a file and prints one line on standard output:
//
//	later/find_hit.json: 2000 cases, 0 skipped, 0 differ
//
// The reasons of skipped cases follow on lines of their own. Skipped cases count as cases.
// The test fails if a case differs.
//
// The package knows the formats and none of the rules. It imports no other package of the
// module, so that the tests of each of them may use it.
package conformance
