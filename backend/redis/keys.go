package redis

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

const (
	// readBatch and writeBatch are the keys of one pipeline. They bound the replies that the
	// server buffers. Between pipelines a call checks its context.
	readBatch, writeBatch = 16384, 2048
	// keysPerCommand is the most keys of one command. The server runs a command to its end
	// before it serves other clients, so it is small.
	keysPerCommand = 512
)

// existsSizes are the keys of one EXISTS, by round. A round asks only for ranges whose count
// in the round before was neither none nor all.
var existsSizes = [...]int{keysPerCommand, 32, 1}

// exec sends commands in one pipeline, in a cluster one for each node. It returns the first
// error of a command. The driver's Nil is one: it may be about a command of the driver's own, and
// ours were never sent.
func (b *Backend) exec(ctx context.Context, cmds []goredis.Cmder) error {
	if len(cmds) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	pipe := b.client.Pipeline()
	if err := pipe.BatchProcess(ctx, cmds...); err != nil {
		return err
	}
	_, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		switch e := cmd.Err(); {
		case e == nil:
			if confirmed, ok := ctx.Value(confirmedKey{}).(*atomic.Bool); ok {
				confirmed.Store(true)
			}
		case err == nil:
			err = e
		}
	}
	if cluster, ok := b.client.(*goredis.ClusterClient); ok && err != nil {
		cluster.ReloadState(ctx) // in the background: a replica may have become primary
	}
	return err
}

// keyRange is the keys [from, to) of a batch.
type keyRange struct{ from, to int }

// existsByCount asks one server by EXISTS of many keys, whose reply is a count.
func (b *Backend) existsByCount(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	for from := 0; from < len(keys); from += readBatch {
		to := min(from+readBatch, len(keys))
		if err := b.existsBatch(ctx, keys[from:to], answers[from:to]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// existsBatch answers for one batch, in rounds of existsSizes. The count decides a range of
// which all keys or none exist; the others are split in the next round.
func (b *Backend) existsBatch(ctx context.Context, keys []string, answers []int) error {
	undecided := []keyRange{{0, len(keys)}}
	for round := 0; len(undecided) > 0; round++ {
		ranges, total := splitRanges(undecided, existsSizes[round])
		cmds := existsCommands(ctx, keys, ranges, total)
		if err := b.exec(ctx, cmds); err != nil {
			return err
		}
		undecided = undecided[:0]
		numUndecided := 0
		for i, r := range ranges {
			switch n := cmds[i].(*goredis.IntCmd).Val(); {
			case n < 0 || n > int64(r.to-r.from):
				return fmt.Errorf("%w: %d of %d keys are said to exist", backend.ErrReply, n, r.to-r.from)
			case n == int64(r.to-r.from):
				for k := r.from; k < r.to; k++ {
					answers[k] = 1
				}
			case n > 0:
				undecided = append(undecided, r)
				numUndecided += r.to - r.from
			}
		}
		if numUndecided > total/2 { // scattered: smaller ranges would be mixed too, so ask key by key
			round = len(existsSizes) - 2
		}
	}
	return nil
}

// splitRanges splits ranges into ranges of at most size keys. total is the number of keys.
func splitRanges(ranges []keyRange, size int) (parts []keyRange, total int) {
	for _, r := range ranges {
		total += r.to - r.from
		for ; r.from < r.to; r.from += size {
			parts = append(parts, keyRange{r.from, min(r.from+size, r.to)})
		}
	}
	return parts, total
}

// existsCommands returns an EXISTS for each range. The ranges have total keys. The commands
// point into keys.
func existsCommands(ctx context.Context, keys []string, ranges []keyRange, total int) []goredis.Cmder {
	args := make([]any, 0, total+len(ranges))
	cmds := make([]goredis.Cmder, len(ranges))
	for i, r := range ranges {
		first := len(args)
		args = append(args, "exists")
		for k := r.from; k < r.to; k++ {
			args = append(args, &keys[k])
		}
		cmds[i] = goredis.NewIntCmd(ctx, args[first:]...)
	}
	return cmds
}

// existsEach asks a cluster by one EXISTS for each key: a command with keys of several slots
// fails.
func (b *Backend) existsEach(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, 0, len(keys))
	for batch := range slices.Chunk(keys, readBatch) {
		cmds := make([]goredis.Cmder, len(batch))
		for i, key := range batch {
			cmds[i] = goredis.NewIntCmd(ctx, "exists", key)
		}
		if err := b.exec(ctx, cmds); err != nil {
			return nil, err
		}
		for _, cmd := range cmds {
			n := cmd.(*goredis.IntCmd).Val()
			if n != 0 && n != 1 {
				return nil, fmt.Errorf("%w: %d of one key are said to exist", backend.ErrReply, n)
			}
			answers = append(answers, int(n))
		}
	}
	return answers, nil
}

// storeKeys sets absent keys. A present key keeps its value, which another program may have
// written, and gets the full time to live.
func (b *Backend) storeKeys(ctx context.Context, keys []string) error {
	for batch := range slices.Chunk(keys, writeBatch) {
		for absent := batch; len(absent) > 0; {
			present, err := b.setAbsent(ctx, absent)
			if err != nil {
				return err
			}
			if absent, err = b.refreshTTL(ctx, present); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAbsent sets the keys that are absent and returns the present ones. A BoolCmd reads the null
// reply about a present key as false.
func (b *Backend) setAbsent(ctx context.Context, keys []string) (present []string, err error) {
	cmds := make([]goredis.Cmder, len(keys))
	for i, key := range keys {
		if b.cfg.TTL > 0 {
			cmds[i] = goredis.NewBoolCmd(ctx, "set", key, "", "nx", "px", b.cfg.TTL.Milliseconds())
		} else {
			cmds[i] = goredis.NewBoolCmd(ctx, "set", key, "", "nx")
		}
	}
	if err := b.exec(ctx, cmds); err != nil {
		return nil, err
	}
	for i, cmd := range cmds {
		if !cmd.(*goredis.BoolCmd).Val() {
			present = append(present, keys[i])
		}
	}
	return present, nil
}

// refreshTTL sets the full time to live of keys and returns those that have expired.
func (b *Backend) refreshTTL(ctx context.Context, keys []string) (expired []string, err error) {
	if b.cfg.TTL == 0 {
		return nil, nil
	}
	cmds := make([]goredis.Cmder, len(keys))
	for i, key := range keys {
		cmds[i] = goredis.NewIntCmd(ctx, "pexpire", key, b.cfg.TTL.Milliseconds())
	}
	if err := b.exec(ctx, cmds); err != nil {
		return nil, err
	}
	for i, cmd := range cmds {
		if cmd.(*goredis.IntCmd).Val() == 0 {
			expired = append(expired, keys[i])
		}
	}
	return expired, nil
}

// evictKeys removes keys.
func (b *Backend) evictKeys(ctx context.Context, keys []string) error {
	perCommand := keysPerCommand
	if b.endpoint.cluster {
		perCommand = 1 // a cluster refuses keys of several slots in one command
	}
	for batch := range slices.Chunk(keys, writeBatch) {
		var cmds []goredis.Cmder
		for part := range slices.Chunk(batch, perCommand) {
			args := append(make([]any, 0, 1+len(part)), "unlink")
			for _, key := range part {
				args = append(args, key)
			}
			cmds = append(cmds, goredis.NewIntCmd(ctx, args...))
		}
		if err := b.exec(ctx, cmds); err != nil {
			return err
		}
	}
	return nil
}
