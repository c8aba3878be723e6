// Package tokens tells where the tokens of prompts went: what the engine held itself, what the pool gave, what was lost and
// why, and what nobody could have had. A server that sees every lookup of its engines is the only one who can. No promise: it is
// internal to this module, and its API may change in any release.
//
// # The story
//
// An engine asks about one prompt several times: while it waits, after a lost connection, from a later start as its own cache
// grows. Its asks are one request, which is counted when no further ask has come for some seconds. What is known of a prompt
// is fixed at the first ask: the blocks that earlier requests asked for, or blocks behind them, as hashes are chained. What was
// found is that of the last.
//
// The tokens of a request are split where its start, its hit and its known blocks end: see splitAnswered. Their places are in
// place.go. Tokens that are lost are of one place: that of the block that ends the hit, which the memory of what was asked
// tells (lost.go). That memory is a bounded table. If not all blocks fit it tracks a share of them, chosen by their hashes, so
// large that it reaches back several times as long as the pool remembers (sampling.go); what was known of a prompt is then
// estimated so that the errors of many prompts cancel out (known.go).
//
// Over a store nobody tells what is saved. So requests are drawn at random, and some time after each the store is asked for a few of
// the blocks that it lacked: a look (look.go).
//
// The same table tells how many blocks were asked for between two asks for one, hence what an LRU pool of any size would have
// held (curve.go, recency.go), and up to which age blocks are found again (recall.go).
//
// # Glossary
//
//   - asker: who asks: a process that has told its name, else a host.
//   - ask: one lookup that a load may follow. Request: the asks of one asker about one prompt.
//   - block: the tokens that one hash stands for. Blocks are counted from token 0.
//   - known: asked for by an earlier request, or before such a block in its chain.
//   - whole: in the pool, in every group and on every rank that a lookup needs.
//   - look: whether the blocks that a request lacked were saved; its outcome is that of all of them.
//   - missed: not whole when it was asked for.
//   - tracked: with an entry in the table, now or when it is next asked for. Judged: tracked for long enough to tell whether it
//     was asked for before.
//   - sample: a block of an ask whose fingerprint was taken.
//
// # Concurrency
//
// An event loop fills in an Event and gives it to its Recorder, which takes a lock that nobody holds for longer than a few
// instructions. Accounts.Run, one goroutine of the server, accounts for what was recorded some milliseconds later, and RunLooks,
// another, asks the store. An Account has one lock. It is held while one event is accounted for, or its status is told, and never while
// the store is asked.
package tokens
