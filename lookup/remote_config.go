package lookup

import "time"

// RemoteConfig configures how a service uses a backend that may be slow or fail. Numbers
// and durations of 0 or below mean the defaults, but for Remember.
type RemoteConfig struct {
	// Timeout bounds a lookup with all its rounds, from its last byte to its answer.
	// Default 100 ms: a scheduler loses less by computing a prompt again than by waiting
	// longer.
	Timeout time.Duration
	// WriteTimeout bounds a store, an evict or a reset. Default 10 s: no scheduler waits
	// for them, and a reset visits the whole pool. A change that exceeds it may still take
	// effect later. Other changes wait until its call has returned.
	WriteTimeout time.Duration
	// Workers is how many lookups and explains of a server ask the backend at a time, and
	// WriteWorkers how many stores, evicts and resets: these never delay lookups. Default
	// 32 and 4.
	// Service's own methods run on the caller's goroutine.
	Workers, WriteWorkers int
	// MaxBytes bounds the hashes of all requests of a server that arrive, wait or run. A server
	// refuses what exceeds it. Default 256 MiB.
	MaxBytes int64
	// MaxKeyBytes bounds the memory of the keys of all calls in flight, with their answers
	// and a copy of their text, which a backend sends. A request waits for memory until
	// its time is up. A quarter is for rounds of few keys.
	// One that takes more than half by itself is refused. Default 1 GiB: two
	// million keys of 100 bytes for one request, which is a prompt of 4 million tokens on 8
	// ranks in blocks of 16. Stores and evicts do not count: they are made in calls of 16,384
	// keys.
	MaxKeyBytes int64
	// Remember is for how long a block that a call has found is answered without a call, from the moment
	// before the call was written, if the Backend has a lease. Default: half of the lease that the
	// store states, and nothing before it has stated one. Below 0: not at all. It is never more than half of
	// the lease, or 10 s before one is stated.
	Remember time.Duration
	// Grouped says that the store renews a lease only when half of it is over, as Mooncake 0.3.12.post1 and
	// 0.3.13.post1 do for grouped keys, and 0.3.14 does not: a quarter of the lease then counts in place of half.
	Grouped bool
	// Memory, if set, counts the keys and answers of calls, in addition to what it counts of others.
	// MaxBytes is then at most 3/16 of its bound, and MaxKeyBytes 10/16.
	Memory *MemoryAccount
	// NumBlocks is how many blocks of a pool's HashBlockSize tokens the backend has room for, in
	// all groups and on all ranks. Default: what the Backend says, else it is not known.
	NumBlocks int64
	// Renew is for which engines what lies before the start of a lookup is renewed. Default RenewAuto.
	Renew Renewal
	// BreakerFailures is how many failures in a row open the circuit breaker. Lookups are
	// then answered 0 without a call, but for one that tries the backend after
	// BreakerPause. Default 5 and 1 s.
	BreakerFailures int
	BreakerPause    time.Duration
}

// Renewal is for which engines a server renews what lies before the start of their lookups. An engine
// reads it in the reply to pool, and asks accordingly.
type Renewal uint8

const (
	// RenewAuto is for engines that only load. One that saves asks for its whole prompts itself.
	RenewAuto Renewal = iota
	// RenewAlways is for all engines.
	RenewAlways
	// RenewNever is for none.
	RenewNever
)

// DefaultWriteTimeout is the default of RemoteConfig.WriteTimeout.
const DefaultWriteTimeout = 10 * time.Second

// DefaultMaxBytes and DefaultMaxKeyBytes are the defaults of RemoteConfig.MaxBytes and
// MaxKeyBytes.
const (
	DefaultMaxBytes    = 256 << 20
	DefaultMaxKeyBytes = 1 << 30
)

// The sixteenths of RemoteConfig.Memory that the hashes and the keys of all requests take at most,
// and what is remembered of found blocks. What connections hold may take two more. So none of the
// four can fill the account.
const hashShare, keyShare, rememberedShare = 3, 10, 1

// maxRenewalBytes returns how much memory requests to renew may take while they wait: the quarter
// of maxRememberedBytes that found blocks leave.
func (c RemoteConfig) maxRenewalBytes() int64 { return c.maxRememberedBytes() / 4 }

// maxRememberedBytes returns how much memory found blocks and requests to renew may take.
func (c RemoteConfig) maxRememberedBytes() int64 {
	if _, maxMemory, _ := c.Memory.Usage(); maxMemory > 0 {
		return min(maxRememberedBytes, maxMemory*rememberedShare/16)
	}
	return maxRememberedBytes
}

// maxRemember bounds RemoteConfig.Remember while the store has not stated its lease.
const maxRemember = 10 * time.Second

// withDefaults replaces zero fields by their defaults.
func (c RemoteConfig) withDefaults() RemoteConfig {
	for _, f := range []struct {
		field *int
		def   int
	}{{&c.Workers, 32}, {&c.WriteWorkers, 4}, {&c.BreakerFailures, 5}} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	for _, f := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.Timeout, 100 * time.Millisecond}, {&c.WriteTimeout, DefaultWriteTimeout}, {&c.BreakerPause, time.Second}} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.MaxKeyBytes <= 0 {
		c.MaxKeyBytes = DefaultMaxKeyBytes
	}
	if _, maxMemory, _ := c.Memory.Usage(); maxMemory > 0 {
		c.MaxBytes, c.MaxKeyBytes = min(c.MaxBytes, maxMemory*hashShare/16), min(c.MaxKeyBytes, maxMemory*keyShare/16)
	}
	return c
}

// rememberFor returns for how long a found block is answered from memory, by the lease that the
// store has stated, 0 before.
func (c RemoteConfig) rememberFor(stated time.Duration) time.Duration {
	longest := stated / 2
	switch {
	case stated == 0 && c.Remember > 0:
		longest = maxRemember
	case c.Grouped:
		longest = stated / 4
	}
	if c.Remember == 0 {
		return longest
	}
	return max(0, min(c.Remember, longest))
}
