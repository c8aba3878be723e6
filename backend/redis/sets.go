package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// setMembers are the members of one set that a call asks for or changes.
type setMembers struct {
	name     string
	members  []string // the bytes of a hash each
	keyIndex []int    // of each member in the keys of the call
}

// groupBySet splits keys into set names and members, and groups the members by set.
func groupBySet(keys []string) ([]setMembers, error) {
	var sets []setMembers
	index := map[string]int{}
	for i, key := range keys {
		cut := strings.LastIndexByte(key, '@')
		if cut < 0 {
			return nil, fmt.Errorf("%w: %q is no block's key", backend.ErrReply, key)
		}
		hash, err := hex.DecodeString(key[cut+1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %q does not end in a hash", backend.ErrReply, key)
		}
		n, ok := index[key[:cut]]
		if !ok {
			n = len(sets)
			index[key[:cut]] = n
			sets = append(sets, setMembers{name: key[:cut]})
		}
		sets[n].members = append(sets[n].members, string(hash))
		sets[n].keyIndex = append(sets[n].keyIndex, i)
	}
	return sets, nil
}

// forEachCommand calls add with the members of keys, at most keysPerCommand of one set at a
// time, and send after about batch members and at the end.
func forEachCommand(keys []string, batch int, add func(set setMembers), send func() error) error {
	sets, err := groupBySet(keys)
	if err != nil {
		return err
	}
	unsent := 0
	for _, set := range sets {
		for from := 0; from < len(set.members); from += keysPerCommand {
			to := min(from+keysPerCommand, len(set.members))
			add(setMembers{name: set.name, members: set.members[from:to], keyIndex: set.keyIndex[from:to]})
			if unsent += to - from; unsent >= batch {
				unsent = 0
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	return send()
}

// args returns a command, the set and its members.
func (s setMembers) args(command string) []any {
	args := append(make([]any, 0, 2+len(s.members)), command, s.name)
	for i := range s.members {
		args = append(args, &s.members[i])
	}
	return args
}

// existsInSets asks one server or a cluster by SMISMEMBER.
func (b *Backend) existsInSets(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	var sets []setMembers
	var cmds []goredis.Cmder
	err := forEachCommand(keys, readBatch, func(set setMembers) {
		sets = append(sets, set)
		cmds = append(cmds, goredis.NewIntSliceCmd(ctx, set.args("smismember")...))
	}, func() error {
		if err := b.exec(ctx, cmds); err != nil {
			return err
		}
		for i, set := range sets {
			replies := cmds[i].(*goredis.IntSliceCmd).Val()
			if len(replies) != len(set.keyIndex) {
				return fmt.Errorf("%w: %d answers about %d members", backend.ErrReply, len(replies), len(set.keyIndex))
			}
			for k, answer := range replies {
				answers[set.keyIndex[k]] = int(answer)
			}
		}
		sets, cmds = sets[:0], cmds[:0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// storeMembers adds members.
func (b *Backend) storeMembers(ctx context.Context, keys []string) error {
	return b.changeSets(ctx, "sadd", keys)
}

// evictMembers removes members.
func (b *Backend) evictMembers(ctx context.Context, keys []string) error {
	return b.changeSets(ctx, "srem", keys)
}

// changeSets sends SADD or SREM for the members of keys.
func (b *Backend) changeSets(ctx context.Context, command string, keys []string) error {
	var cmds []goredis.Cmder
	return forEachCommand(keys, writeBatch, func(set setMembers) {
		cmds = append(cmds, goredis.NewIntCmd(ctx, set.args(command)...))
	}, func() error {
		err := b.exec(ctx, cmds)
		cmds = cmds[:0]
		return err
	})
}
