// Package netproto is the wire of hitline: frames, request and reply messages,
// and the lazy views over block hashes. It is pure bytes: it opens no sockets,
// starts no goroutines and imports no other package of the module.
//
// # Glossary
//
//   - frame: flags (1 byte), length (1 byte, or 8 bytes big-endian when the LONG
//     flag is set), body. Exactly the frame of ZMTP 3.x.
//   - message: frames with the MORE flag, then one without.
//   - envelope: address frames and an empty delimiter in front of a request; they
//     are returned unchanged in front of its reply, and so serve as request id.
//   - raw dialect: messages straight after connecting, without a greeting.
//   - ZMTP: the protocol of ZeroMQ sockets; here 3.0 and 3.1, as a REP peer under
//     the NULL mechanism. A connection is a greeting of 64 bytes, a handshake, then
//     commands and messages.
//   - command: one frame that ZMTP itself has to say, between messages.
//   - blob: one frame that holds the block hashes of a request, joined.
//   - hash: a block hash of hash_len bytes, an opaque key.
//   - chunk: a block of a group; k hash blocks long, keyed by its last hash.
//
// # Layout
//
//	frame    flags  length            body
//	         1      1 | 8 (LONG)      length bytes
//	         bit 0 MORE, bit 1 LONG, bit 2 COMMAND, others zero
//
//	lookup   [envelope] "lookup" | num_tokens | hash_len | blob
//	explain  [envelope] "explain" | as lookup
//	store    [envelope] "store"  | rank  | hash_len | blob [| key before the first]
//	evict    [envelope] "evict"  | rank  | hash_len | blob
//	rank     group u16 | tp_rank u16 | pp_rank u16 [| pcp_rank u16 [| first chunk u32]]
//
// All integers are big-endian.
//
// # Reading
//
// [Reader] is a state machine that is fed the bytes of one connection in the
// pieces in which they arrive. Header fields are small and kept in the Reader;
// the blob is handed on in place, as whole hashes borrowed from the fed slice,
// so a request of any size needs no buffer. Only a hash that is cut by the end
// of a piece is carried over, at most hash_len - 1 bytes; [Reader.Copied] counts
// those bytes.
//
// The first byte of a connection chooses the dialect. What ZMTP has to say to the
// peer, such as its part of the handshake, the Reader hands to [Handler].Control;
// beyond that the dialects differ only in where an envelope begins.
//
// # Invariants
//
//   - Feed consumes all that it is given, whatever it holds.
//   - No allocation is proportional to a length that a peer claims: what the
//     Reader keeps is bounded by the constants in limits.go.
//   - What a peer sends yields either a call of the [Handler] or an error, never a
//     panic. After an error the connection cannot be resynchronised: every later
//     Feed returns the same error.
//   - The same bytes give the same calls however they are cut, but for the cuts
//     of the Hashes calls.
//   - Nothing but the greeting goes to a ZMTP peer before its READY is accepted, and
//     a refusal is final. What Control says is bounded by what the peer has sent.
//
// # Ownership
//
// Slices passed to a [Handler] are valid until the method returns. [Hashes] and
// [Chunks] borrow from the blob they were made over.
package netproto
