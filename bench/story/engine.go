package story

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

const (
	blockTokens   = 16 // of a block, hitline's default
	hashLen       = sha256.Size
	systemPrompts = 5  // with which conversations begin
	systemBlocks  = 16 // of such a prompt
	turnBlocks    = 8  // that a conversation grows by, each time its user asks
	turns         = 6  // that a conversation has
)

// conversation is what one user asks: a system prompt, and turns behind it.
type conversation struct {
	number int // no other has it
	turn   int // from 1 on: how many there are
}

func (c *conversation) isOver() bool { return c.turn > turns }

// hashes returns the block hashes of all turns.
func (c *conversation) hashes(seed string) []byte {
	all := make([]byte, 0, (systemBlocks+c.turn*turnBlocks)*hashLen)
	for i := range systemBlocks + c.turn*turnBlocks {
		text := fmt.Sprintf("%s system %d %d", seed, c.number%systemPrompts, i)
		if i >= systemBlocks {
			text = fmt.Sprintf("%s user %d %d", seed, c.number, i)
		}
		hash := sha256.Sum256([]byte(text))
		all = append(all, hash[:]...)
	}
	return all
}

// engine asks for what it does not hold, and saves what it computes.
type engine struct {
	name   string
	seed   string // of its hashes
	ranks  uint16 // that save
	client *client.Client
}

// dial connects the engine under its name.
func (e *engine) dial(ctx context.Context, address string) (err error) {
	e.client, err = client.Dial(ctx, address, client.WithPoolName(""), client.WithClientInfo(map[string]any{"process": e.name}))
	return err
}

// serve answers a user: the engine looks up the prompt, computes what is missing, and saves all. Of some users the system
// prompt is in its own cache.
func (e *engine) serve(ctx context.Context, c *conversation) error {
	hashes := c.hashes(e.seed)
	asked := coordinator.NewHashes(hashes, hashLen)
	if c.number%3 == 0 {
		asked = coordinator.NewHashes(hashes[systemBlocks*hashLen:], hashLen).From(systemBlocks * blockTokens)
	}
	if _, err := e.client.Lookup(ctx, int64(len(hashes)/hashLen*blockTokens), asked); err != nil {
		return err
	}
	for rank := range e.ranks {
		if err := e.client.Store(ctx, coordinator.GroupRank{TPRank: rank}, coordinator.NewHashes(hashes, hashLen)); err != nil {
			return err
		}
	}
	c.turn++
	return nil
}
