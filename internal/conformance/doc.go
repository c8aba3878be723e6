// Package conformance reads the golden vectors and reports how an
// implementation compares with them. It is for tests only.
//
// The vectors are JSON files recorded from the unmodified reference at three
// revisions: the files at the top were recorded at 2026-06-20, those below
// later/ at 2026-08-17 and those below docpage/ at 2026-06-04. A file is named
// by its path relative to the set, for example "later/find_hit.json".
//
// Where the files come from: the directory named by the environment variable
// HITLINE_CONFORMANCE if it is set (a relative one is resolved against the
// module root, so that it means the same in every package), otherwise the
// compressed copies embedded in this package. A file that is missing, that does
// not parse or that holds no case fails the test: silence is never agreement.
//
// Files below extra/ are not part of that set and always the embedded ones. They
// were recorded in the same way: from the wheels of vLLM 0.23.0, 0.24.0 and 0.27.1,
// whose rules are those of 2026-06-04, 2026-06-20 and 2026-08-17. (The store masks of
// mamba groups with a retention interval, in which 0.24.0 differs, are left out.)
// extra/negative-DATE.json has lengths and starts below zero.
//
// What a file holds: every file has an array "cases", and every case an "id"
// that is part of the input, since it seeds the hashes. [Run] walks the cases
// of a file and prints one line for it on standard output,
//
//	later/find_hit.json: 2000 cases, 0 skipped, 0 differ
//
// with the reasons of skipped cases on lines of their own. Skipped cases count
// as cases. The test fails if any case differs.
//
// The package knows the formats and none of the rules, and imports no other
// package of the module, so that the tests of each of them may use it.
package conformance
