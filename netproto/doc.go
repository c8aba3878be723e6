// Package netproto encodes and decodes hitline's wire: frames, requests, replies, and
// lazy views over block hashes. It works on bytes only: it opens no sockets, starts no
// goroutines and imports no other package of the module. docs/protocol.md describes
// the wire for clients in other languages.
//
// # Glossary
//
//   - frame: flags (1 byte), length (1 byte, or 8 bytes if the LONG flag is set), body.
//     Exactly the frame of ZMTP 3.x.
//   - message: frames with the MORE flag, then one without.
//   - envelope: address frames and an empty delimiter before a request. They are
//     returned unchanged before its reply, and so serve as request id.
//   - raw dialect: messages from the first byte on, without a greeting.
//   - ZMTP: the protocol of ZeroMQ sockets (RFC 37/ZMTP), versions 3.0 and 3.1. We are a
//     REP peer under the NULL mechanism or, after [Reader.SetPlain], under NULL or PLAIN
//     (RFC 24/ZMTP-PLAIN). A connection is a greeting of 64 bytes, a handshake, then
//     commands and messages.
//   - command: a frame of ZMTP's own between messages, such as READY or PING.
//   - blob: one frame of block hashes, joined.
//   - hash: a block hash of hash_len bytes, an opaque key.
//   - chunk: a block of a group, stride hash blocks long. The last of its hashes keys it:
//     see [KeyIndex].
//   - group rank: the group and ranks that hold a store's or evict's chunks.
//   - mask: an entry for each chunk of a group, true for those to load, store or look up.
//   - state: what a mamba group keeps of the tokens up to one of them. The hash that ends at
//     that token keys it.
//
// # Layout
//
//	frame    flags  length            body
//	         1      1 | 8 (LONG)      length bytes
//	         bit 0 MORE, bit 1 LONG, bit 2 COMMAND, others zero
//
//	lookup   [envelope] "lookup"  | num_tokens | hash_len | blob
//	explain  [envelope] "explain" | as lookup
//	plan     [envelope] "plan"    | as lookup
//	store    [envelope] "store"   | rank | hash_len | blob [| one more key, which has no effect]
//	evict    [envelope] "evict"   | rank | hash_len | blob
//	reset    [envelope] "reset_rank" | rank, of 6 or 8 bytes
//	rank     group u16 | tp_rank u16 | pp_rank u16 [| pcp_rank u16 [| 4 bytes, which have no effect]]
//	masks    [envelope] "load_mask" | num_tokens u32, num_hashes u32
//	         [envelope] "store_mask" | num_tokens u32, start_token u32, prompt_tokens u32
//	         [envelope] "lookup_mask" | num_tokens u32
//	prompt   [envelope] "store_prompt" | num_tokens u32, start_token u32, prompt_tokens u32,
//	         first_hash u32 | ranks | states | hash_len | blob
//	holders  [envelope] "holders" | JSON | hash_len | blob
//	others   [envelope] tag [| frames]
//
// All integers are big-endian.
//
// # Reading
//
// [Reader] is a state machine. It is fed the bytes of one connection in the pieces in
// which they arrive. It keeps header fields, which are small. It passes the hashes of a
// blob on in place, as whole hashes borrowed from the piece, so a request of any size
// needs no buffer. Only a hash cut by the end of a piece is copied; [Reader.Copied]
// counts its bytes.
//
// A [Handler] can bound its work: at most [MaxPiece] hashes are passed at a time, and it can
// pause the Reader between any two calls. Feed then returns how many bytes it has consumed, and
// goes on with the others when it is called again.
//
// The first byte of a connection chooses the dialect. The Reader passes what ZMTP sends
// to the peer, such as its part of the handshake, to [Handler].Control. Beyond that the
// dialects differ only in how an envelope is recognised.
//
// # Invariants
//
//   - Feed consumes all bytes that it is given, unless the Handler pauses it or it fails.
//   - No allocation is proportional to a length that a peer claims. The constants in
//     limits.go bound what a Reader keeps.
//   - Any input yields calls of the [Handler] or an error, never a panic. After an error
//     the connection cannot be resynchronised: every later Feed returns the same error.
//   - The same bytes yield the same calls however they are cut and wherever the Handler
//     pauses, except for the cuts of the Hashes calls.
//   - A ZMTP peer is sent nothing but the greeting before its READY or INITIATE is accepted,
//     except the WELCOME to its HELLO and the ERROR that refuses it. The bytes of Control are
//     bounded by those received.
//   - Tokens and passwords are overwritten where they were received and where they were
//     gathered, once they have been checked.
//
// # Ownership
//
// Slices passed to a [Handler] are valid until the method returns. [Hashes] borrow the
// blob they view. The Append functions append to dst and return it, as append does, and
// retain nothing.
package netproto
