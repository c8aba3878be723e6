package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

const (
	// askBatch and writeBatch are the keys of one pipeline: they bound what the
	// server holds of replies, and are where a call looks whether its time is up.
	askBatch, writeBatch = 16384, 2048
	// manyKeys are the keys of one command that takes many: few enough that other
	// clients of the server hardly wait for it.
	manyKeys = 512
)

// askSizes are the keys of one EXISTS where it takes many, round by round: only
// what a round leaves undecided is in the next.
var askSizes = [...]int{manyKeys, 32, 1}

// exec sends commands in one pipeline, a cluster's by node. It fails if one fails.
// An absent value is no failure.
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
	if err == nil || errors.Is(err, goredis.Nil) {
		err = nil
		for _, cmd := range cmds {
			if e := cmd.Err(); e != nil && !errors.Is(e, goredis.Nil) {
				err = e
				break
			}
		}
	}
	if cluster, ok := b.client.(*goredis.ClusterClient); ok && err != nil {
		cluster.ReloadState(ctx) // in the background: a primary may have been replaced
	}
	return err
}

// span is a run of keys.
type span struct{ from, to int }

// askCounts asks one server.
func (b *Backend) askCounts(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	for from := 0; from < len(keys); from += askBatch {
		to := min(from+askBatch, len(keys))
		if err := b.countBatch(ctx, keys[from:to], answers[from:to]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// countBatch asks how many keys of a run are there, and in smaller runs if that is
// neither none nor all.
func (b *Backend) countBatch(ctx context.Context, keys []string, answers []int) error {
	undecided := []span{{0, len(keys)}}
	for round := 0; len(undecided) > 0; round++ {
		size := askSizes[round]
		var pieces []span
		total := 0
		for _, s := range undecided {
			total += s.to - s.from
			for ; s.from < s.to; s.from += size {
				pieces = append(pieces, span{s.from, min(s.from+size, s.to)})
			}
		}
		args := make([]any, 0, total+len(pieces))
		counts := make([]*goredis.IntCmd, len(pieces))
		cmds := make([]goredis.Cmder, len(pieces))
		for i, s := range pieces {
			begun := len(args)
			args = append(args, "exists")
			for k := s.from; k < s.to; k++ {
				args = append(args, &keys[k])
			}
			counts[i] = goredis.NewIntCmd(ctx, args[begun:]...)
			cmds[i] = counts[i]
		}
		if err := b.exec(ctx, cmds); err != nil {
			return err
		}
		undecided = undecided[:0]
		left := 0
		for i, s := range pieces {
			switch n := counts[i].Val(); {
			case n < 0 || n > int64(s.to-s.from):
				return fmt.Errorf("%w: %d of %d keys are said to exist", backend.ErrReply, n, s.to-s.from)
			case n == int64(s.to-s.from):
				for k := s.from; k < s.to; k++ {
					answers[k] = 1
				}
			case n > 0:
				undecided = append(undecided, s)
				left += s.to - s.from
			}
		}
		if left > total/2 { // scattered all over: smaller runs would be as mixed
			round = len(askSizes) - 2
		}
	}
	return nil
}

// askEach asks a cluster.
func (b *Backend) askEach(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, 0, len(keys))
	for batch := range slices.Chunk(keys, askBatch) {
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

// storeKeys sets keys that are not there. A key that is there keeps its value, which
// may be another's, and lives on from now.
func (b *Backend) storeKeys(ctx context.Context, keys []string) error {
	for batch := range slices.Chunk(keys, writeBatch) {
		for missing := batch; len(missing) > 0; {
			there, err := b.setMissing(ctx, missing)
			if err != nil {
				return err
			}
			if missing, err = b.prolong(ctx, there); err != nil {
				return err
			}
		}
	}
	return nil
}

// setMissing sets the keys that are absent and returns the others.
func (b *Backend) setMissing(ctx context.Context, keys []string) (there []string, err error) {
	cmds := make([]goredis.Cmder, len(keys))
	for i, key := range keys {
		if b.cfg.TTL > 0 {
			cmds[i] = goredis.NewStatusCmd(ctx, "set", key, "", "nx", "px", b.cfg.TTL.Milliseconds())
		} else {
			cmds[i] = goredis.NewStatusCmd(ctx, "set", key, "", "nx")
		}
	}
	if err := b.exec(ctx, cmds); err != nil {
		return nil, err
	}
	for i, cmd := range cmds {
		if errors.Is(cmd.Err(), goredis.Nil) {
			there = append(there, keys[i])
		}
	}
	return there, nil
}

// prolong gives keys their whole time to live, and returns those that are gone.
func (b *Backend) prolong(ctx context.Context, keys []string) (gone []string, err error) {
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
			gone = append(gone, keys[i])
		}
	}
	return gone, nil
}

// evictKeys removes keys.
func (b *Backend) evictKeys(ctx context.Context, keys []string) error {
	each := manyKeys
	if b.at.cluster {
		each = 1
	}
	for batch := range slices.Chunk(keys, writeBatch) {
		var cmds []goredis.Cmder
		for piece := range slices.Chunk(batch, each) {
			args := append(make([]any, 0, 1+len(piece)), "unlink")
			for _, key := range piece {
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
