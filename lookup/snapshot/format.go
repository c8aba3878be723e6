package snapshot

import (
	"math"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/netproto"
)

// The file is a stream of package parts. Its sections are: fileInfo, then of each pool poolInfo and the records of its
// index until the section ends.
const (
	magic  = "HITLSNAP"
	format = 2
)

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

// A record is:
//
//	kind
//	last use (fixed)  of a DumpRun
//	group ranks       their number and 1, then of each its distance from the one before, less 1, the first from -1; or 0
//	                  for those of the record before in the section, if it is not the first
//	hash length, keys
const (
	maxGroupRanks = 1 << 16 // of a pool, as lookup.NewService bounds them
	maxHashLen    = netproto.MaxHashLen
)

// numKeys returns how many keys a record has.
func numKeys(r *index.DumpRecord) int { return len(r.Keys) / max(r.HashLen, 1) }

// writeRecord writes a record. last are the group ranks of the record before in the section.
func writeRecord(w *parts.Writer, r *index.DumpRecord, last []int) {
	w.Uvarint(uint64(r.Kind))
	if r.Kind == index.DumpRun {
		w.Fixed64(r.LastUse)
	}
	if slices.Equal(r.Places, last) {
		w.Uvarint(0)
	} else {
		w.Uvarint(uint64(len(r.Places)) + 1)
		next := 0
		for _, rank := range r.Places {
			w.Uvarint(uint64(rank - next))
			next = rank + 1
		}
	}
	w.Uvarint(uint64(r.HashLen))
	w.Bytes(r.Keys)
}

// readRecord reads a record into one that has the record before. Its keys are valid until the next call. The index checks
// what the record says.
func readRecord(in *parts.Reader, r *index.DumpRecord) {
	*r = index.DumpRecord{Kind: index.DumpKind(in.Uvarint(math.MaxUint8)), Places: r.Places}
	if r.Kind == index.DumpRun {
		r.LastUse = in.Fixed64()
	}
	if n := in.Uvarint(maxGroupRanks + 1); n > 0 {
		r.Places = r.Places[:0]
		next := uint64(0)
		for range n - 1 {
			rank := next + in.Uvarint(maxGroupRanks)
			if rank >= maxGroupRanks {
				in.Fail("a record of group rank %d; at most %d is possible", rank, maxGroupRanks-1)
				return
			}
			r.Places, next = append(r.Places, int(rank)), rank+1
		}
	}
	r.HashLen = int(in.Uvarint(maxHashLen))
	r.Keys = in.Bytes(index.MaxDumpKeys * maxHashLen)
	if len(r.Keys)%max(r.HashLen, 1) != 0 || r.HashLen == 0 && len(r.Keys) > 0 {
		in.Fail("a record with %d bytes of keys of %d bytes", len(r.Keys), r.HashLen)
	}
}
