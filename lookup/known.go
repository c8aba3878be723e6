package lookup

import (
	"context"
	"errors"
	"math/bits"

	"github.com/hitline/hitline/coordinator"
)

// knownBlocks is the coordinator.KeyStore of a lookup that asks nothing: it has the blocks that were found a
// moment ago.
type knownBlocks struct {
	remoteLookup
	left    int  // blocks that may still be compared, below 0 if the backend has to be asked anyway
	unknown bool // the backend would have to be asked
}

// maxKnownBlocks is how many blocks are compared with what was found in some 150 microseconds: those of a
// prompt of smallHashes hashes in four groups. One that is not known costs as much as unknownCost that are, which lie
// side by side.
const maxKnownBlocks, unknownCost = 4 * smallHashes, 16

// smallHashes is how many hashes a lookup has at most that is answered so.
const smallHashes = 2048

var errUnknownBlocks = errors.New("the backend must be asked")

// Reserve fails: a block is not known.
func (k *knownBlocks) Reserve(int64) error {
	k.unknown = true
	return errUnknownBlocks
}

// Known returns the blocks that were found within rememberFor, none once too many were compared, or once a block of full
// attention is not known: the hit needs them all.
func (k *knownBlocks) Known(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) (known uint64) {
	if k.left >= 0 {
		known = k.remoteLookup.Known(g, hashes, first, stride, blocks)
		k.left -= bits.OnesCount64(known) + unknownCost*bits.OnesCount64(blocks&^known)
		if known != blocks && k.remote.service.coord.Group(g).Kind.IsFull() {
			k.left = -1
		}
	}
	return known
}

// lookupKnown is lookup if the backend need not be asked. It returns false otherwise, and where lookup fails or
// takes long.
func (r *remote) lookupKnown(numTokens int64, hashes coordinator.Hashes) (Answer, bool) {
	known := &knownBlocks{remoteLookup: remoteLookup{remote: r, rememberFor: r.rememberFor()}, left: maxKnownBlocks}
	if known.rememberFor == 0 || hashes.Len() > smallHashes || r.service.coord.NumBlocks(hashes) > maxKnownBlocks {
		return Answer{}, false
	}
	hit, ending, err := r.service.coord.LookupEnding(numTokens, hashes, known)
	if err != nil || known.unknown {
		return Answer{}, false
	}
	known.countRemembered()
	answer, err := r.end(context.Background(), numTokens, hashes, outcome{hit: hit, ending: ending})
	return answer, err == nil
}
