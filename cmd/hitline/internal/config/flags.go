package config

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// Flags are the settings of the command line. What is nil was not given.
type Flags struct {
	Listen    []string // replaces the list
	Loops     *int
	BlockSize *int    // tokens; one full-attention group and both block sizes
	VLLM      *string // release of the pool
	Backend   *string
}

// readFlags applies the flags that were given.
func (c *Config) readFlags(flags Flags) error {
	if flags.Listen != nil {
		c.origins.set("listen", origin{name: "--listen"})
		c.Listen = Listeners(flags.Listen...)
	}
	if flags.Loops != nil {
		c.origins.set("loops", origin{name: "--loops"})
		c.Loops = *flags.Loops
	}
	if flags.BlockSize != nil {
		if err := c.setBlockSize(*flags.BlockSize); err != nil {
			return err
		}
	}
	if flags.VLLM != nil {
		c.origins.set("pool.vllm", origin{name: "--vllm"})
		c.Pool.VLLM = *flags.VLLM
	}
	if flags.Backend != nil {
		at := origin{name: "--backend"}
		if err := checkBackendName(*flags.Backend); err != nil {
			return &problem{at: at, text: err.Error(), err: err}
		}
		c.setBackend(*flags.Backend, at)
	}
	return nil
}

// setBlockSize makes the pool one of a single full-attention group.
func (c *Config) setBlockSize(tokens int) error {
	at := origin{name: "--block-size"}
	if tokens < 1 {
		return &problem{at: at, text: fmt.Sprintf("%d is not a number of tokens, must be 1 or more", tokens)}
	}
	for _, path := range []string{"pool.hash_block_size", "pool.scheduler_block_size", "pool.groups", "pool.groups[0].kind", "pool.groups[0].block_size"} {
		c.origins.set(path, at)
	}
	c.Pool.HashBlockSize, c.Pool.SchedulerBlockSize = tokens, tokens
	c.Pool.Groups = []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: tokens}}
	return nil
}
