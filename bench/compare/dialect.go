package compare

import (
	"encoding/binary"

	"github.com/hitline/hitline/netproto"
)

// dialect is how a rival is spoken to on a socket. A reply to a lookup is a fixed
// prefix and the hit as u32.
type dialect struct {
	zmtp   bool                                     // greetings go first
	lookup func(tokens uint32, blobLen int) []byte  // what comes before the hashes
	prefix []byte                                   // of a reply to a lookup
	store  func(blobLen int) (before, reply []byte) // nil: nothing is stored
}

// raw is hitline's own.
var raw = framed(nil)

// zmtp is that of a REQ socket, by which an engine asks.
var zmtp = func() dialect {
	d := framed(netproto.AppendFrame(nil, nil, true)) // the delimiter
	d.zmtp = true
	return d
}()

// framed is the dialect of ZeroMQ's frames, in an envelope or without.
func framed(envelope []byte) dialect {
	reply := netproto.AppendHit(nil, envelope, 0)
	return dialect{
		lookup: func(tokens uint32, blobLen int) []byte {
			return netproto.AppendLookup(nil, envelope, tokens, hashLen, blobLen)
		},
		prefix: reply[:len(reply)-4],
		store: func(blobLen int) (before, reply []byte) {
			before = netproto.AppendKeys(nil, envelope, netproto.TagStore, netproto.GroupRank{}, hashLen, blobLen)
			return before, netproto.AppendDone(nil, envelope, nil)
		},
	}
}

// silent is that of the floor server: it gets as many bytes as hitline and always
// answers 0.
var silent = dialect{lookup: raw.lookup}

// plain is that of ServeMap.
var plain = dialect{
	lookup: func(tokens uint32, blobLen int) []byte { return plainHead(mapLookup, tokens, blobLen) },
	store: func(blobLen int) (before, reply []byte) {
		return plainHead(mapStore, 0, blobLen), make([]byte, 4)
	},
}

func plainHead(op byte, tokens uint32, blobLen int) []byte {
	return appendPlainHead(nil, op, tokens, blobLen)
}

// appendPlainHead appends what goes before the hashes of a request to ServeMap.
func appendPlainHead(b []byte, op byte, tokens uint32, blobLen int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(mapHead+blobLen))
	return binary.BigEndian.AppendUint32(append(b, op), tokens)
}

// zmtpGreeting and zmtpReady are what a REQ socket sends before its first request.
var (
	zmtpGreeting = append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"), make([]byte, 48)...)
	zmtpReady    = []byte("\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00")
)
