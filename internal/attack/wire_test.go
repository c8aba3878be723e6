//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// blockTokens is the number of tokens of a hash in every pool of these tests.
const blockTokens = 16

const kib, mib = 1 << 10, 1 << 20

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
	return bytes.Repeat(request, count), count
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

// lookupFrom returns a lookup from the last start before hash n on, which has no hashes.
func lookupFrom(n uint32) []byte {
	return netproto.AppendLookupFrom(nil, nil, netproto.TagLookupFrom, n*blockTokens, n*blockTokens, 0, 0)
}

// explain returns an explain of hashes, which are joined.
func explain(hashes []byte, hashLen int) []byte {
	n := uint32(len(hashes) / max(1, hashLen))
	return append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, n*blockTokens, 0, hashLen, len(hashes)), hashes...)
}

// store returns a store of keys, which are joined.
func store(at coordinator.GroupRank, keys []byte, hashLen int) []byte {
	return append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.WireRank(at), hashLen, len(keys)), keys...)
}

// command returns a ZMTP command of at most 255 bytes.
func command(name, data string) []byte {
	const flagCommand = 1 << 2
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

// readMessage reads the frames of a message.
func readMessage(in *bufio.Reader) (frames [][]byte, err error) {
	const more, long, maxFrame = 1, 2, 1 << 20
	for flags := byte(more); flags&more != 0; {
		if flags, err = in.ReadByte(); err != nil {
			return nil, err
		}
		header := make([]byte, 8)
		size := header[7:]
		if flags&long != 0 {
			size = header
		}
		if _, err := io.ReadFull(in, size); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint64(header)
		if n > maxFrame {
			return nil, fmt.Errorf("attack: a frame of a reply has %d bytes", n)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(in, body); err != nil {
			return nil, err
		}
		frames = append(frames, body)
	}
	return frames, nil
}

// readDone reads a reply that must be 01.
func readDone(in *bufio.Reader) error {
	frames, err := readMessage(in)
	if err == nil && (len(frames) != 1 || string(frames[0]) != "\x01") {
		err = fmt.Errorf("attack: the server refused a request: %q", frames)
	}
	return err
}
