// Package netproto is the wire: frames, requests and replies. No promise: it is internal to
// this module, and its API may change in any release. docs/protocol.md describes the wire.
//
// It works on bytes only: it opens no sockets, and imports no other package of the module.
//
// # Story
//
// The server has a [Reader] for each connection, and feeds it the bytes in the pieces in which they
// arrive. The first byte chooses the dialect: messages straight away (raw), or a ZMTP greeting.
// What ZMTP sends to its peer, such as its part of the handshake, goes to [Handler].Control. Beyond
// that the dialects differ only in how an envelope is recognised.
//
// The first body frame of a message is its tag. The tag's row in the table kinds says what frames
// follow, and the same loop reads them all: beginBody, readBody, endBody. The first frame that is
// wrong becomes the [Problem] of the [Request]; the connection goes on.
//
// Header fields are small and kept. The hashes of a blob are passed to the Handler in place, as
// whole hashes borrowed from the piece, so that a request of any size needs no buffer. Only a hash
// cut by the end of a piece is copied. At the end of the message the Handler gets the whole Request,
// and decides whether the Reader goes on to the next.
//
// The Append functions encode requests and replies. [ParseMessage] and the other Parse functions
// decode replies, which lie in one buffer.
//
// The frames, greetings and commands of ZMTP also serve router/events, which is a SUB and a DEALER
// peer of its own.
//
// # Glossary
//
//   - frame: flags (1 byte), length (1 byte, or 8 bytes if the LONG flag is set), body.
//     Exactly the frame of ZMTP 3.x.
//   - message: frames with the MORE flag, then one without.
//   - envelope: address frames and an empty delimiter before a request. They are
//     returned unchanged before its reply, and so serve as request id.
//   - ZMTP: the protocol of ZeroMQ sockets (RFC 37/ZMTP), versions 3.0 and 3.1. We are a
//     REP peer under the NULL mechanism or, after [Reader.SetPlain], under NULL or PLAIN
//     (RFC 24/ZMTP-PLAIN). A connection is a greeting of 64 bytes, a handshake, then
//     commands and messages.
//   - command: a frame of ZMTP's own between messages, such as READY or PING.
//   - blob: one frame of block hashes, joined, of hash_len bytes each.
//   - rank: the group and ranks that hold the keys of a store or an evict.
//
// # Invariants
//
//   - No allocation is proportional to a length that a peer claims. The constants in
//     limits.go bound what a Reader keeps.
//   - Any input yields calls of the [Handler] or an error, never a panic. After an error
//     the connection cannot be resynchronised: every later Feed returns the same error.
//   - The same bytes yield the same calls however they are cut, except for the cuts of the
//     Hashes calls.
//   - A ZMTP peer is sent nothing but the greeting before its READY or INITIATE is accepted,
//     except the WELCOME to its HELLO and the ERROR that refuses it. The bytes of Control are
//     bounded by those received.
//   - Tokens and passwords are overwritten where they were received and where they were
//     gathered, once they have been checked.
package netproto
