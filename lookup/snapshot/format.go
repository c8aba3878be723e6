package snapshot

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
)

// The file is a header and parts, see package parts; integers are little-endian.
//
//	header   magic [8] | format u32 | id [16] | checksum u32
//
// The checksum of the header is CRC-32C of what is in front of it. The checksums of the parts begin with the id:
// a part of another file does not fit. The last part is of kind partEnd, and nothing follows it.
const (
	magic     = "HITLSNAP"
	format    = 1
	idLen     = 16
	headerLen = len(magic) + 4 + idLen + 4
)

// partKind is what a part holds.
type partKind uint32

const (
	partFile    partKind = iota + 1 // fileInfo, as JSON; the first part
	partPool                        // poolInfo, as JSON: the records that follow are of its index
	partRecords                     // records of the index
	partEnd                         // totals, as JSON
)

// maxPart bounds the payload of a part, in bytes: what a reader allocates before it knows that the checksum
// is right. A record of an index fits: at most 64 KiB of keys and 192 KiB of places.
const maxPart = 1 << 20

// fullPart is when a part of records is written: once it has so many bytes. Writing that many to the cache of
// the system takes some 20 microseconds of a core that lookups may need.
const fullPart = 64 << 10

// fileInfo tells of the file.
type fileInfo struct {
	Created time.Time `json:"created"` // when the first dump began
	Version string    `json:"version"` // of the program
}

// poolInfo tells of a pool. Digest is that of its description, see server.ServedPool.
type poolInfo struct {
	Name      string           `json:"name"`
	Described bool             `json:"described"`
	Digest    string           `json:"digest"`
	Pool      coordinator.Pool `json:"pool"`
}

// totals are what a reader must have counted at the end.
type totals struct {
	Pools   int   `json:"pools"`
	Records int64 `json:"records"`
	Entries int64 `json:"entries"` // keys of runs
}

// count counts a record.
func (t *totals) count(r *index.DumpRecord) {
	t.Records++
	if r.Kind == index.DumpRun {
		t.Entries += int64(numKeys(r))
	}
}

// appendHeader appends the header of a file.
func appendHeader(b []byte, id []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, format)
	b = append(b, id...)
	return binary.LittleEndian.AppendUint32(b, parts.Checksum(b))
}

// errNoSnapshot says that the file is something else.
var errNoSnapshot = fmt.Errorf("not a snapshot: it does not begin with %q", magic)

// parseHeader returns the id in a header of headerLen bytes.
func parseHeader(b []byte) (id []byte, err error) {
	sum := headerLen - 4
	switch version := binary.LittleEndian.Uint32(b[len(magic):]); {
	case string(b[:len(magic)]) != magic:
		return nil, errNoSnapshot
	case parts.Checksum(b[:sum]) != binary.LittleEndian.Uint32(b[sum:]):
		return nil, fmt.Errorf("the checksum of the header is wrong")
	case version != format:
		return nil, fmt.Errorf("a snapshot of format %d, and this program reads format %d", version, format)
	}
	return b[len(magic)+4 : sum], nil
}
