package compare

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// Requests to ServeMap are the length of what follows as u32, one of these, the
// number of tokens as u32 and the hashes.
const (
	mapLookup = 'L'
	mapStore  = 'S'
	mapHead   = 1 + 4 // bytes after the length, without the hashes
)

// mapBuffer is the size in bytes with which ServeMap reads.
const mapBuffer = 64 << 10

// ServeMap serves a Go map of hashes on a free port, which it announces on log as
// hitline announces its own, with a goroutine for each connection; it is what one would
// write in an afternoon. The reply is the hit in tokens, of which a hash covers so
// many, as u32. It returns when it cannot go on.
func ServeMap(log io.Writer, blockSize int) error {
	listener, err := announce(log)
	if err != nil {
		return err
	}
	defer listener.Close()
	m := mapServer{blockSize: blockSize, held: map[[hashLen]byte]struct{}{}}
	return serveEach(listener, func(conn net.Conn) {
		_ = m.serve(conn) // the client has gone, or sent what it should not
	})
}

// mapServer is the map. Safe for concurrent use.
type mapServer struct {
	blockSize int

	mu   sync.RWMutex
	held map[[hashLen]byte]struct{}
}

// serve answers until the connection ends.
func (m *mapServer) serve(conn io.ReadWriter) error {
	in := bufio.NewReaderSize(conn, mapBuffer)
	var request []byte // reused
	var reply [4]byte
	for {
		var err error
		if request, err = readPlain(in, request); err != nil {
			return err
		}
		hit, hashes := uint32(0), request[mapHead:]
		switch request[0] {
		case mapLookup:
			hit = m.lookup(binary.BigEndian.Uint32(request[1:]), hashes)
		case mapStore:
			m.store(hashes)
		default:
			return fmt.Errorf("request %q is neither lookup nor store", request[0])
		}
		binary.BigEndian.PutUint32(reply[:], hit)
		if _, err := conn.Write(reply[:]); err != nil {
			return err
		}
	}
}

// readPlain reads a whole request, into the memory of the last one if it fits.
func readPlain(in io.Reader, request []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(length[:]))
	if n < mapHead || n > mapHead+MaxHashes*hashLen {
		return nil, fmt.Errorf("a request of %d bytes", n)
	}
	if n > cap(request) {
		request = make([]byte, n)
	}
	request = request[:n]
	_, err := io.ReadFull(in, request)
	return request, err
}

func (m *mapServer) store(hashes []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; len(hashes) >= hashLen; hashes = hashes[hashLen:] {
		m.held[[hashLen]byte(hashes)] = struct{}{}
	}
}

// lookup returns the hit in tokens: whole hashes, and at most tokens.
func (m *mapServer) lookup(tokens uint32, hashes []byte) uint32 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	hit := 0
	for ; len(hashes) >= hashLen && hit+m.blockSize <= int(tokens); hashes = hashes[hashLen:] {
		if _, held := m.held[[hashLen]byte(hashes)]; !held {
			break
		}
		hit += m.blockSize
	}
	return uint32(hit)
}

// appendPlainHead appends what goes before the hashes of a request to ServeMap.
func appendPlainHead(b []byte, op byte, tokens uint32, blobLen int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(mapHead+blobLen))
	return binary.BigEndian.AppendUint32(append(b, op), tokens)
}
