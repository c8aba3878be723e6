// Package crowd measures what many engines ask of one Mooncake master. No promise: it is internal to this
// module, and its API may change in any release.
//
// # What is simulated
//
// Sessions are made of a trace: each request continues the session that had the longest part of its prompt before,
// at least two ids of 512 tokens; sessions of one request are left out. After the last session they come again
// with other ids, but for the first of each prompt. Prompts keep the trace's lengths.
//
// An engine begins 0.2 turns a second, a Poisson process that waits for nothing (an open loop). It has eight open
// sessions. A turn is the next prompt of one of them, drawn at random; a session that has ended makes
// way for the next one of the trace. Of five turns one goes to another engine than its session's.
//
// An engine has a cache of its own, in blocks, which drops the least recently used. A turn waits 0 to 20 steps of
// 50 ms in the engine's queue, and its [Way] says when it asks for the hit. The last answer counts. Then its
// ranks load what the store has behind the engine's own blocks, ask for all keys of the prompt, as vLLM does
// before it saves, and put those that are missing: objects of some hundred bytes. Two of Mooncake's own clients do that for
// all engines (store.py).
//
// All turns are made by the seed: every way has the same.
//
// # What is real
//
// The master, its evictions and the clients that load and save; hitline, and the questions of its
// client; and the bytes of vLLM's own lookup, which are those of a recording. The Python of vLLM's
// lookup is not run. Between hitline and the master a [tap] counts keys and leases; that adds some
// tenths of a millisecond to its lookups.
//
// # What is measured
//
// A cell is a way and a number of engines. It has a master of its own. At first the store is filled with what such a store
// would hold after many turns, so that it evicts; then turns run for a while that do not count. The window
// begins when none of them is left, and ends when all its turns have ended.
package crowd
