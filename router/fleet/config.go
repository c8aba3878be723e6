package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
)

// Config bounds a Fleet and describes what its engines have in common.
type Config struct {
	// BlockSize is how many tokens one hash of a query covers: the engines' hash block size.
	BlockSize int
	// Groups are the KV cache groups in the order of the engines. Nil: as the events of each engine tell.
	Groups []coordinator.Group
	// Release is the release of vLLM by whose rules groups make a prefix, empty for the newest.
	Release string
	// FirstBytes says that the short form of a hash is its first 8 bytes, as SGLang's. Otherwise it
	// is the last 8, as vLLM's.
	FirstBytes bool
	// MaxBytes bounds the memory for blocks and sets of holders, at most MaxBytes; 0: DefaultMaxBytes.
	MaxBytes int64
	// MaxHolders bounds the holders; 0: DefaultMaxHolders.
	MaxHolders int
	// MaxBlocks bounds the blocks of one holder in all groups and tiers; 0: DefaultMaxBlocks. More are predicted
	// only while both together are fewer.
	MaxBlocks int
	// PredictTTL is how long a predicted block counts at most, and at least three quarters of it; 0:
	// DefaultPredictTTL. See Holder.Predict.
	PredictTTL time.Duration
	// Dropped, if set, is called after blocks were dropped at the memory bound. It must not block, nor call the fleet.
	Dropped func()

	now       func() time.Time // of tests; nil: time.Now
	described *rules           // of Groups; none if they are nil
}

// check sets the defaults. It fails with fielderror.ErrConfig.
func (c *Config) check() error {
	switch {
	case c.BlockSize <= 0 || c.BlockSize > math.MaxInt32:
		return fmt.Errorf("%w: %w", fielderror.ErrConfig, fielderror.New([]string{"block_size"}, "a block of %d tokens, must be 1 to %d", c.BlockSize, math.MaxInt32))
	case c.MaxBytes < 0 || c.MaxHolders < 0 || c.MaxBlocks < 0 || c.PredictTTL < 0:
		return fmt.Errorf("%w: a bound is negative", fielderror.ErrConfig)
	case c.MaxBytes > MaxBytes:
		return fmt.Errorf("%w: %w", fielderror.ErrConfig, fielderror.New([]string{"max_bytes"}, "%d bytes, at most %d are possible", c.MaxBytes, int64(MaxBytes)))
	case c.MaxHolders > MaxHolders:
		return fmt.Errorf("%w: %d holders, at most %d are possible", fielderror.ErrConfig, c.MaxHolders, MaxHolders)
	case len(c.Groups) > maxGroups:
		return fmt.Errorf("%w: %d groups, at most %d are possible", fielderror.ErrConfig, len(c.Groups), maxGroups)
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.MaxHolders = cmp.Or(c.MaxHolders, DefaultMaxHolders)
	c.MaxBlocks = cmp.Or(c.MaxBlocks, DefaultMaxBlocks)
	c.PredictTTL = max(cmp.Or(c.PredictTTL, DefaultPredictTTL), epochsPerTTL)
	if c.now == nil {
		c.now = time.Now
	}
	if len(c.Groups) == 0 {
		c.Groups = nil
	}
	numbers := make([]int, len(c.Groups))
	for i := range numbers {
		numbers[i] = i
	}
	var err error
	if c.described, err = makeRules(c, c.Groups, numbers); err != nil {
		return fmt.Errorf("%w: %w", fielderror.ErrConfig, err)
	}
	return nil
}

const (
	// DefaultMaxBytes is 1 GiB: some 20 million blocks.
	DefaultMaxBytes = 1 << 30
	// MaxBytes bounds Config.MaxBytes, so that positions and set numbers of 32 bits suffice.
	MaxBytes          = 32 << 30
	DefaultMaxHolders = 4096
	DefaultMaxBlocks  = 16 << 20
	// MaxHolders bounds Config.MaxHolders.
	MaxHolders = 1 << 20
	// DefaultPredictTTL is as long as blocks of a busy engine stay cached at least.
	DefaultPredictTTL = 2 * time.Minute
)

// Errors of a Fleet.
var (
	ErrExists  = errors.New("there is such a holder")
	ErrTooMany = errors.New("too many holders")
	// ErrFull refuses blocks: the memory bound, or that of entries of one holder, is reached.
	ErrFull = errors.New("too many blocks")
	// ErrGroup refuses blocks of a KV cache group that differs from what was described, or from what the holder has told.
	ErrGroup = errors.New("a KV cache group other than before")
	// ErrHashLen refuses hashes of less than 8 bytes.
	ErrHashLen = errors.New("hashes of less than 8 bytes")
	// ErrClosed is the error of a holder that was closed.
	ErrClosed = errors.New("the holder is closed")
)
