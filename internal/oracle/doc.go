// Package oracle answers lookups slowly, by the rules as they are written down and
// entry by entry, so that the fast ways to an answer can be compared with something
// that shares no code with them. It is for tests only, and imports no other package
// of the module.
//
// It knows three dated revisions of the reference, the vLLM MooncakeStore connector:
// 2026-06-04 (finding and masks only), 2026-06-20 and 2026-08-17. Its own test holds
// it against the recorded answers of each.
//
// # Words
//
// Raw hash i stands for tokens [i*H, (i+1)*H) of a prompt and all before them, H being
// the hash block size. Chunk c of a group with blocks of B tokens is keyed by raw hash
// c*k + k - 1, with k = B/H. L is the scheduler block size. A is the alignment of hits:
// H in fine-grained mode, otherwise L.
package oracle
