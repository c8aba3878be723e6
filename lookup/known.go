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
	keyLease
	left    int  // blocks that may still be compared
	unknown bool // the backend would have to be asked
}

// maxKnownBlocks is how many blocks are compared with what was found in some 150 microseconds: those of a
// prompt of smallHashes hashes in four groups.
const maxKnownBlocks = 4 * smallHashes

var errUnknownBlocks = errors.New("the backend must be asked")

// Reserve fails: a block is not known.
func (k *knownBlocks) Reserve(int64) error {
	k.unknown = true
	return errUnknownBlocks
}

// Known returns the blocks that were found within the window, none once too many were compared.
func (k *knownBlocks) Known(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) uint64 {
	if k.left -= bits.OnesCount64(blocks); k.left < 0 {
		return 0
	}
	return k.keyLease.Known(g, hashes, first, stride, blocks)
}

// lookupKnown is lookup if the backend need not be asked. It returns false otherwise, and where lookup fails or
// takes long.
func (r *remote) lookupKnown(numTokens int64, hashes coordinator.Hashes) (Answer, bool) {
	known := &knownBlocks{keyLease: keyLease{remote: r, window: r.window()}, left: maxKnownBlocks}
	if known.window == 0 || hashes.Len() > smallHashes {
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
