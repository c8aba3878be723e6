package gatewayapi

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// entryBytes is what an entry of the cache takes besides its token ids.
const entryBytes = 256

// tokenCache keeps the token ids of the prompts that were asked for last. Safe for concurrent use.
type tokenCache struct {
	maxBytes int

	mu      sync.Mutex
	entries map[promptKey]*list.Element
	recent  list.List // of *cachedPrompt, that used last in front
	bytes   int
}

// promptKey is the hash of a body of /tokenize.
type promptKey = [sha256.Size]byte

type cachedPrompt struct {
	key    promptKey
	tokens []uint32
}

func (p *cachedPrompt) bytes() int { return entryBytes + 4*cap(p.tokens) }

// get returns the token ids of a prompt, which others share; nil if they are not kept.
func (c *tokenCache) get(key promptKey) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entries[key]
	if entry == nil {
		return nil
	}
	c.recent.MoveToFront(entry)
	return entry.Value.(*cachedPrompt).tokens
}

// put keeps the token ids of a prompt, in place of those used longest ago. The caller must not change them.
func (c *tokenCache) put(key promptKey, tokens []uint32) {
	prompt := &cachedPrompt{key, tokens}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil || prompt.bytes() > c.maxBytes {
		return
	}
	for c.bytes+prompt.bytes() > c.maxBytes {
		oldest := c.recent.Remove(c.recent.Back()).(*cachedPrompt)
		delete(c.entries, oldest.key)
		c.bytes -= oldest.bytes()
	}
	if c.entries == nil {
		c.entries = map[promptKey]*list.Element{}
	}
	c.entries[key] = c.recent.PushFront(prompt)
	c.bytes += prompt.bytes()
}
