package router

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/router/events"
)

// Agreement says whether the hashes in a source's events are those that the model's Hash makes of the tokens in them.
type Agreement string

const (
	// HashesUnchecked: since the engine has begun, or cleared what it held, no event had the first block of a prompt with
	// its tokens, or one alone had and differs, or the model has no Hash.
	HashesUnchecked Agreement = "unchecked"
	HashesAgree     Agreement = "agree"
	// HashesDiffer: the hashes of two different blocks were others. Tokens find nothing of this source.
	HashesDiffer Agreement = "differ"
)

// While hashes are not known to agree, freeChecks blocks of a source are hashed at once, and then one each checkPause. A hostile
// engine whose hashes differ and agree in turn is in the log once each warnEvery.
const (
	freeChecks = 16
	checkPause = 100 * time.Millisecond
	warnEvery  = time.Minute
)

// hashCheck compares the hashes of a source with those that the model's Hash makes. Its source calls check and reset; others
// read the result.
type hashCheck struct {
	profile   Hashing
	blockSize int
	log       *slog.Logger // of the source
	changed   func()       // is called after the result has changed

	numChecked int
	last       time.Time          // when a block was hashed last
	wrong      *events.FirstBlock // a block whose hash is another one
	warned     string             // the reason that was logged last
	warnedAt   time.Time
	isTold     bool // the last line in the log says that they differ

	mu     sync.Mutex
	state  Agreement
	reason string // what would fit
}

// newHashCheck returns the check of a source of the model, nil if the model has no Hash.
func (m *model) newHashCheck(log *slog.Logger) *hashCheck {
	if m.cfg.Hash == nil {
		return nil
	}
	return &hashCheck{
		profile: *m.cfg.Hash, blockSize: m.cfg.Fleet.BlockSize, log: log, changed: m.changed, state: HashesUnchecked,
	}
}

// result returns whether the hashes agree, and what would.
func (c *hashCheck) result() (Agreement, string) {
	if c == nil {
		return HashesUnchecked, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.reason
}

// set changes the result.
func (c *hashCheck) set(state Agreement, reason string) {
	defer c.changed()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.reason = state, reason
}

// reset makes the hashes unchecked: they may be those of another engine from now on.
func (c *hashCheck) reset() {
	c.wrong = nil
	if state, _ := c.result(); state != HashesUnchecked {
		c.set(HashesUnchecked, "")
	}
}

// check compares the hash of a block with the model's. It returns false once no further block is needed. One block may differ
// for a reason that events do not tell, so hashes differ only when a second block says so, too, or when another block_size
// makes the hash.
func (c *hashCheck) check(b *events.FirstBlock) (more bool) {
	c.numChecked++
	if c.numChecked > freeChecks && time.Since(c.last) < checkPause {
		return true
	}
	c.last = time.Now()
	tokens := b.NumTokens()
	state, _ := c.result()
	isWhole := tokens%c.blockSize == 0 // a block of a KV cache group may be several of the model's
	switch {
	case isWhole && c.profile.fits(c.blockSize, b):
		if c.isTold {
			c.log.Info("router: the hashes of a source agree with the model's again")
		}
		c.set(HashesAgree, "")
		c.isTold, c.wrong = false, nil
		return false
	case state == HashesDiffer:
	case tokens != c.blockSize && c.profile.fits(tokens, b): // which no other size of block makes
		c.setDiffer(fmt.Sprintf("the engine hashes blocks of %d tokens: give the model block_size: %d", tokens, tokens))
	case !isWhole: // an error of its own, when the block is stored
	case c.wrong == nil:
		c.wrong = cloneBlock(b)
	case !bytes.Equal(c.wrong.Hash, b.Hash):
		c.setDiffer(c.profile.explain(c.blockSize, c.wrong, b))
	}
	return true
}

// setDiffer says that the hashes differ, and what would fit.
func (c *hashCheck) setDiffer(reason string) {
	c.set(HashesDiffer, reason)
	if reason != c.warned && time.Since(c.warnedAt) >= warnEvery {
		c.warned, c.warnedAt, c.isTold = reason, time.Now(), true
		c.log.Warn("router: the hashes of a source differ from the model's, so queries by tokens find nothing of it", "reason", reason)
	}
}

// cloneBlock returns a copy that borrows nothing.
func cloneBlock(b *events.FirstBlock) *events.FirstBlock {
	return &events.FirstBlock{
		Hash: bytes.Clone(b.Hash), Tokens: slices.Clone(b.Tokens), Pairs: b.Pairs, Lookahead: slices.Clone(b.Lookahead), Salt: b.Salt,
	}
}

// fits reports whether h makes the hash of a block.
func (h *Hashing) fits(blockSize int, b *events.FirstBlock) bool {
	digest, short, err := h.firstHash(blockSize, b)
	switch {
	case err != nil || len(digest) == 0:
		return false
	case len(b.Hash) == shortHashLen:
		return binary.BigEndian.Uint64(b.Hash) == short
	}
	return h.Type != TypeSGLang && bytes.Equal(b.Hash, digest)
}

// firstHash returns the digest of the first block of a prompt, and the 64 bits that events have of it: none if h is not of
// such blocks. A block of a KV cache group may have several hashes, the last of which counts.
func (h *Hashing) firstHash(blockSize int, b *events.FirstBlock) (digest []byte, short uint64, err error) {
	if h.Type == TypeSGLang {
		if h.Bigrams != b.Pairs {
			return nil, 0, nil
		}
		s, err := blockhash.NewSGLang(blockhash.SGLangConfig{
			PageSize: blockSize, Bigrams: h.Bigrams, Namespace: blockhash.Namespace{Salt: b.Salt, Dynamo: h.Dynamo},
		})
		if err != nil {
			return nil, 0, err
		}
		if digest, err = s.AppendHashes(nil, b.Tokens); err != nil || len(digest) == 0 {
			return nil, 0, err
		}
		digest = digest[len(digest)-blockhash.DigestLen:]
		return digest, s.ShortHash(digest), nil
	}
	if b.Pairs || len(b.Lookahead) != h.Lookahead {
		return nil, 0, nil
	}
	v, err := h.newVLLM(blockSize)
	if err != nil {
		return nil, 0, err
	}
	digest, err = v.AppendHashes(nil, slices.Concat(b.Tokens, b.Lookahead), &blockhash.ExtraKeys{Salt: b.Salt})
	if err != nil || len(digest) == 0 {
		return nil, 0, err
	}
	return digest[len(digest)-v.HashLen():], blockhash.ShortHash(digest), nil
}

// explain says what the model's hash should be, so that it makes the hashes of these blocks.
func (h *Hashing) explain(blockSize int, blocks ...*events.FirstBlock) string {
	tokens := blocks[0].NumTokens()
	for _, size := range slices.Compact([]int{blockSize, tokens}) {
		for _, c := range h.candidates(blocks[0]) {
			if slices.ContainsFunc(blocks, func(b *events.FirstBlock) bool { return !c.fits(size, b) }) {
				continue
			}
			text, _ := json.Marshal(&c) // it has texts, numbers and booleans
			if size != blockSize {
				return fmt.Sprintf("the engine hashes otherwise, and blocks of %d tokens: give the model block_size: %d and hash: %s", size, size, text)
			}
			return fmt.Sprintf("the engine hashes otherwise: give the model hash: %s", text)
		}
	}
	if h.Type == TypeVLLM {
		return "no known way to hash fits: the engine's PYTHONHASHSEED is probably another; give its text as seed in the model's hash"
	}
	return "no known way to hash fits: the requests may have an extra_key, on which hashes depend; ask by hashes"
}

// candidates returns the ways to hash that engines have, those with the model's settings first.
func (h *Hashing) candidates(b *events.FirstBlock) (list []Hashing) {
	for _, release := range slices.Compact([]string{h.Release, "", "0.30.0", "0.28.0"}) {
		for _, algorithm := range slices.Compact([]blockhash.Algorithm{h.Algorithm, "", blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR}) {
			for _, seed := range []*string{h.Seed, nil, new("0"), new("1"), new("42"), new("")} {
				list = append(list, Hashing{Type: TypeVLLM, Release: release, Algorithm: algorithm, Seed: seed, Lookahead: len(b.Lookahead)})
			}
		}
	}
	for _, dynamo := range []bool{h.Dynamo, !h.Dynamo} {
		list = append(list, Hashing{Type: TypeSGLang, Bigrams: b.Pairs, Dynamo: dynamo})
	}
	return list
}
