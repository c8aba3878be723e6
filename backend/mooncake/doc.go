// Package mooncake is a backend over a Mooncake store: it asks the store's master
// which keys exist, as vLLM does, by the master's own RPC and in pure Go.
//
// # One question
//
//	Exists → call (turn, connection) → appendExist → master → replyLen → parseExist
//
// The encoding (encode.go) and decoding (decode.go) are functions over bytes; what
// they mean is in wire.go. A true answer takes a read lease on the block, so that it
// is still there when the engine loads it: that is why no answer is kept here and
// every lookup asks the master again.
//
// # Forms
//
// Mooncake v0.3.12 added the tenant to the arguments of BatchExistKey, and nothing
// that the master says of itself tells which it takes. Each connection begins with
// an empty question in the one form and, if that is refused, in the other. A master
// that takes neither is not used, and the log says so.
//
// # The leader
//
// Of several masters only the leader serves RPC. The seeker asks all of them at
// once, when there is no leader, when the leader's connections fail and when it
// has let several questions in a row time out; the first that answers is the leader.
// While nobody answers the rounds come ever more rarely, and a question in a pause
// between them fails at once; one that comes during a round waits for its end.
//
// # Connections
//
// A connection serves one question at a time, since the master answers those of one
// connection one after the other. One that has failed in any way, a timeout
// included, is closed: what may still arrive on it belongs to no question.
//
// # Reading only
//
// Blocks are stored by the engines, together with their data. Store and Evict
// refuse, and so does Reset unless the configuration allows it: it empties the
// store under every engine that uses it.
package mooncake
