package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// setMembers are the members of one set that a call is about.
type setMembers struct {
	name    string
	members []string // of a hash's bytes
	at      []int    // which key each is of
}

// bySet takes keys apart into sets and members.
func bySet(keys []string) ([]setMembers, error) {
	var sets []setMembers
	number := map[string]int{}
	for i, key := range keys {
		cut := strings.LastIndexByte(key, '@')
		if cut < 0 {
			return nil, fmt.Errorf("%w: %q is no block's key", backend.ErrReply, key)
		}
		hash, err := hex.DecodeString(key[cut+1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %q does not end in a hash", backend.ErrReply, key)
		}
		n, ok := number[key[:cut]]
		if !ok {
			n = len(sets)
			number[key[:cut]] = n
			sets = append(sets, setMembers{name: key[:cut]})
		}
		sets[n].members = append(sets[n].members, string(hash))
		sets[n].at = append(sets[n].at, i)
	}
	return sets, nil
}

// eachPiece calls visit with the members of keys, at most manyKeys of one set at a
// time, and send after about batch members and at the end.
func eachPiece(keys []string, batch int, visit func(set setMembers), send func() error) error {
	sets, err := bySet(keys)
	if err != nil {
		return err
	}
	waiting := 0
	for _, set := range sets {
		for from := 0; from < len(set.members); from += manyKeys {
			to := min(from+manyKeys, len(set.members))
			visit(setMembers{name: set.name, members: set.members[from:to], at: set.at[from:to]})
			if waiting += to - from; waiting >= batch {
				waiting = 0
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	return send()
}

// arguments returns a command about members.
func (s setMembers) arguments(command string) []any {
	args := append(make([]any, 0, 2+len(s.members)), command, s.name)
	for i := range s.members {
		args = append(args, &s.members[i])
	}
	return args
}

// askSets asks one server or a cluster.
func (b *Backend) askSets(ctx context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	var sets []setMembers
	var cmds []goredis.Cmder
	err := eachPiece(keys, askBatch, func(set setMembers) {
		sets = append(sets, set)
		cmds = append(cmds, goredis.NewIntSliceCmd(ctx, set.arguments("smismember")...))
	}, func() error {
		if err := b.exec(ctx, cmds); err != nil {
			return err
		}
		for i, set := range sets {
			got := cmds[i].(*goredis.IntSliceCmd).Val()
			if len(got) != len(set.at) {
				return fmt.Errorf("%w: %d answers about %d members", backend.ErrReply, len(got), len(set.at))
			}
			for k, answer := range got {
				answers[set.at[k]] = int(answer)
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

func (b *Backend) storeMembers(ctx context.Context, keys []string) error {
	return b.changeSets(ctx, "sadd", keys)
}

func (b *Backend) evictMembers(ctx context.Context, keys []string) error {
	return b.changeSets(ctx, "srem", keys)
}

func (b *Backend) changeSets(ctx context.Context, command string, keys []string) error {
	var cmds []goredis.Cmder
	return eachPiece(keys, writeBatch, func(set setMembers) {
		cmds = append(cmds, goredis.NewIntCmd(ctx, set.arguments(command)...))
	}, func() error {
		err := b.exec(ctx, cmds)
		cmds = cmds[:0]
		return err
	})
}
