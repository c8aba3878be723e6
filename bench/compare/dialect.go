package compare

import (
	"encoding/binary"

	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// dialect is how a rival is spoken to on a socket. A reply to a lookup is a fixed
// prefix and the hit as u32.
type dialect struct {
	framing wire.Dialect                             // "": what is not hitline's
	lookup  func(tokens uint32, blobLen int) []byte  // what comes before the hashes
	prefix  []byte                                   // of a reply to a lookup
	store   func(blobLen int) (before, reply []byte) // nil: nothing is stored
}

// raw is hitline's own.
var raw = framed(wire.Raw)

// zmtp is that of a REQ socket, by which an engine asks.
var zmtp = framed(wire.ZMTP)

// framed is a dialect of hitline's.
func framed(d wire.Dialect) dialect {
	return dialect{
		framing: d,
		lookup: func(tokens uint32, blobLen int) []byte {
			return netproto.AppendLookup(nil, d.Envelope(), tokens, hashLen, blobLen)
		},
		prefix: d.HitPrefix(),
		store: func(blobLen int) (before, reply []byte) {
			return netproto.AppendKeys(nil, d.Envelope(), netproto.TagStore, netproto.GroupRank{}, hashLen, blobLen), d.Done()
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
