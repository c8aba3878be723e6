//go:build linux

package main

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/hitline/hitline/netproto"
)

// blockTokens is the number of tokens of a hash in every pool of this tool.
const blockTokens = 16

// randomBytes returns n bytes. Equal labels give equal bytes.
func randomBytes(label string, n int) []byte {
	var seed [32]byte
	copy(seed[:], label)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

// repeat returns as many copies of a request as fit size bytes, at least one, and their number.
func repeat(request []byte, size int) (blob []byte, count int) {
	count = max(1, size/len(request))
	blob = make([]byte, 0, count*len(request))
	for range count {
		blob = append(blob, request...)
	}
	return blob, count
}

// request returns a request without an envelope.
func request(tag netproto.Tag, frames ...[]byte) []byte {
	return netproto.AppendRequest(nil, nil, tag, frames...)
}

// lookup returns a lookup of hashes, which are joined.
func lookup(hashes []byte, hashLen int) []byte {
	n := uint32(len(hashes) / max(1, hashLen))
	return append(netproto.AppendLookup(nil, nil, n*blockTokens, hashLen, len(hashes)), hashes...)
}

// explain returns an explain of hashes, which are joined.
func explain(hashes []byte, hashLen int) []byte {
	n := uint32(len(hashes) / max(1, hashLen))
	return append(netproto.AppendExplain(nil, nil, n*blockTokens, hashLen, len(hashes)), hashes...)
}

// store returns a store of keys, which are joined.
func store(at netproto.GroupRank, keys []byte, hashLen int) []byte {
	return append(netproto.AppendKeys(nil, nil, netproto.TagStore, at, hashLen, len(keys)), keys...)
}

// storeChunks returns a store of keys from chunk number first on. before is the key in front of
// them, or empty.
func storeChunks(first uint32, before, keys []byte, hashLen int) []byte {
	more := len(before) > 0
	b := append(netproto.AppendChunks(nil, nil, netproto.GroupRank{}, first, hashLen, len(keys), more), keys...)
	if more {
		b = netproto.AppendFrame(b, before, false)
	}
	return b
}

// anchors returns a request by numAnchors anchors at even distances over the blocks of a chain.
func anchors(chain []byte, hashLen, numAnchors int, digests bool) []byte {
	n := len(chain) / hashLen
	a := netproto.Anchors{NumHashes: uint32(n), Stride: 1}
	var blob []byte
	next := 0 // the first block behind the last anchor
	for i := range numAnchors {
		block := (i+1)*n/numAnchors - 1
		a.Add(uint32(block))
		if digests {
			a.AddDigest(netproto.Digest(chain[next*hashLen : (block+1)*hashLen]))
		}
		blob = append(blob, chain[block*hashLen:(block+1)*hashLen]...)
		next = block + 1
	}
	a.First = uint32(n)
	return append(netproto.AppendAnchors(nil, nil, uint32(n)*blockTokens, &a, hashLen, len(blob)), blob...)
}

// unknownRequest is a request whose name no server knows.
func unknownRequest() []byte { return netproto.AppendFrame(nil, []byte("x"), false) }

// flagCommand marks a ZMTP command.
const flagCommand = 1 << 2

// command returns a ZMTP command of at most 255 bytes.
func command(name, data string) []byte {
	b := []byte{flagCommand, byte(1 + len(name) + len(data)), byte(len(name))}
	return append(append(b, name...), data...)
}

// zmtpHello returns a greeting under the NULL mechanism and the READY of a REQ socket.
func zmtpHello() []byte {
	b := make([]byte, 64)
	b[0], b[8], b[9], b[10], b[11] = 0xff, 1, 0x7f, 3, 1
	copy(b[12:], "NULL")
	return append(b, command("READY", "\x0bSocket-Type\x00\x00\x00\x03REQ")...)
}

// zmtpHelloReply is the number of bytes that a server answers zmtpHello with: its greeting, and
// READY with the socket type REP.
const zmtpHelloReply = 64 + 27

// replyCounter counts the messages in a stream of bytes. The zero value is ready.
type replyCounter struct {
	messages int
	header   []byte // of the frame that has begun, incomplete
	body     uint64 // bytes of the frame's body that are still to come
}

// feed counts the messages that end in p.
func (r *replyCounter) feed(p []byte) {
	for len(p) > 0 {
		if r.body > 0 {
			n := min(r.body, uint64(len(p)))
			r.body -= n
			p = p[n:]
			r.endFrame()
			continue
		}
		r.header = append(r.header, p[0])
		p = p[1:]
		switch long := r.header[0]&2 != 0; {
		case !long && len(r.header) == 2:
			r.body = uint64(r.header[1])
			r.endFrame()
		case long && len(r.header) == 9:
			r.body = binary.BigEndian.Uint64(r.header[1:])
			r.endFrame()
		}
	}
}

// endFrame counts the frame if it has ended and is the last of its message.
func (r *replyCounter) endFrame() {
	if r.body > 0 {
		return
	}
	if r.header[0]&1 == 0 {
		r.messages++
	}
	r.header = r.header[:0]
}
