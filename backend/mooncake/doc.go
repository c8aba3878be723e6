// Package mooncake is a backend over a Mooncake store. It asks the store's master which keys exist,
// as vLLM does: by the master's own RPC, in pure Go. No promise: it is internal to this module, and
// its API may change in any release.
//
// # One lookup
//
//	Exists → exist (chunks) → pull → withConn (idle or new connection) → batchExist → roundTrip
//	         appendExist → master → parseHeader → parseExist
//
// Encoding (encode.go) and decoding (decode.go) are functions over bytes; wire.go has the
// format. A positive answer takes a read lease on the block, so that it is still stored when
// the engine loads it. The client keeps no answers.
//
// A reply does not state how long the lease is. So a found key is asked for by GetReplicaList, after the
// answer, once after each new connection: its reply does. A peek asks by BatchProbeKey (v0.3.14), which leases
// nothing, or as Exists if the master does not know it.
//
// # Processes
//
// A generation begins when keys may have gone: with another leader or process, or if a connection is lost
// during a call. A connection that a call has given up begins none, nor one that ended while it was idle. But the
// first request on a new connection is for a key that was found: if it is absent, another process
// answers. With high availability the version of the leader's view tells that, too, by Ping (process.go).
//
// # Glossary
//
//   - master: a mooncake_master process. It knows which keys the store has.
//   - leader: the master that serves RPC. The others are standbys.
//   - term: counts the leaders that a Client has found.
//   - round: one search for the leader. It dials all masters at once.
//   - generation: counts the processes that may have answered.
//   - form: how a master encodes the arguments of its functions, see [Form].
//   - lease: protects a block from eviction for a while.
//
// # Forms
//
// Mooncake v0.3.12 added the tenant to the arguments of BatchExistKey. A master does not
// report which form it takes. So each connection begins with a request for no keys in one
// form and, if that fails, in the other. A master that takes neither is not used, and the
// log says so.
//
// # The leader
//
// Only the leader serves RPC. The first master that answers in a round is the leader. A
// goroutine runs a round if there is no leader, if connecting to it fails, if it reports
// that it does not serve, or after three timeouts in a row. While no master answers, the
// delay between rounds doubles from 10 ms to 1 s. A call during a round waits for its end; a
// call between rounds fails at once.
//
// # Connections
//
// A connection serves one request at a time: a master answers the requests of a connection in
// order, by one thread. A connection that has failed in any way, a timeout included, is closed.
// So a late reply is never read as the answer to another request.
//
// Connections are dialled one after another, all that may be, once there is a leader: so they are on
// different threads of the master. They are used in turn. Idle ones are looked at four times a second: so the
// end of a master is noticed when nobody asks.
//
// The keys of a long prompt are asked in chunks, which connections take as they become free. One call
// has at most half of them. Once a key is absent that ends the hit, no chunk begins whose keys no
// longer matter. Calls of more than maxSmallKeys keys together leave a quarter of the connections, of
// several at least one, to smaller calls.
//
// # Read only
//
// Only engines store blocks, together with their data. Store and Evict return
// backend.ErrReadOnly. So does Reset unless [Config.AllowReset] is set, because it empties the
// store under every engine that uses it.
//
// # Errors
//
// Errors wrap the sentinels of package backend. Those of a master that cannot be used as
// configured wrap backend.ErrMismatch. Those of New wrap api.ErrConfig.
package mooncake
