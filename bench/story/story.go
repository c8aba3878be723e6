package story

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Story is something that is wrong, with the engines that show it.
type Story struct {
	Name string
	// Fault is what is wrong, and Sign where the page shows it.
	Fault, Sign string
	// Environ configures the server, which is over memory.
	Environ []string

	engines  []engine
	users    int           // how many have a conversation at a time
	pause    time.Duration // between two prompts
	affinity bool          // users ask in turn, each one engine; else user and engine of a prompt are drawn
}

// Stories returns all stories.
func Stories() []Story {
	return []Story{
		{
			Name:    "small-pool",
			Fault:   "the pool holds about a third of the blocks of all conversations",
			Sign:    "evicted is the largest loss, and the curve says what a larger pool would give",
			Environ: []string{"HITLINE_BACKEND_MEMORY_MAX_ENTRIES=4096"},
			engines: []engine{{name: "engine-1", ranks: 1}, {name: "engine-2", ranks: 1}},
			users:   400, pause: 10 * time.Millisecond,
		},
		{
			Name:    "failed-puts",
			Fault:   "rank 1 of engine-2 saves nothing",
			Sign:    "after a minute partial is the largest loss, and engine-2 has the lower hit share",
			Environ: []string{"HITLINE_POOL_TP_SIZE=2", "HITLINE_POOL_NUM_KV_HEAD=2"},
			engines: []engine{{name: "engine-1", ranks: 2}, {name: "engine-2", ranks: 1}},
			// A user comes back after more than the half minute for which blocks count as being saved.
			users: 1800, pause: 20 * time.Millisecond, affinity: true,
		},
		{
			Name:    "hash-seed",
			Fault:   "engine-3 hashes with another seed than engine-1 and engine-2",
			Sign:    "nobody else asks for the first blocks of engine-3",
			engines: []engine{{name: "engine-1", ranks: 1}, {name: "engine-2", ranks: 1}, {name: "engine-3", ranks: 1, seed: "another"}},
			users:   400, pause: 10 * time.Millisecond,
		},
	}
}

// Find returns the story of a name.
func Find(name string) (Story, error) {
	all := Stories()
	i := slices.IndexFunc(all, func(s Story) bool { return s.Name == name })
	if i < 0 {
		return Story{}, fmt.Errorf("%w: there is no story %q; there are %s", measure.ErrOptions, name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names returns the names of all stories.
func Names() (names []string) {
	for _, s := range Stories() {
		names = append(names, s.Name)
	}
	return names
}

// Tell has the engines ask the server at an address and save there, until ctx ends, and then returns nil.
func (s *Story) Tell(ctx context.Context, address string) error {
	for i := range s.engines {
		if err := s.engines[i].dial(ctx, address); err != nil {
			return fmt.Errorf("%w: %w", measure.ErrLost, err)
		}
		defer s.engines[i].client.Close()
	}
	users := make([]conversation, s.users)
	for number := range users { // not all begin at the same time
		users[number] = conversation{number: number, turn: 1 + number%turns}
	}
	tick := time.NewTicker(s.pause)
	defer tick.Stop()
	choose := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same engines each time
	for n := 0; ; n++ {
		u, e := choose.IntN(len(users)), choose.IntN(len(s.engines))
		if s.affinity {
			u = n % len(users)
			e = u % len(s.engines)
		}
		user := &users[u]
		err := s.engines[e].serve(ctx, user)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", measure.ErrLost, err)
		}
		if user.isOver() {
			*user = conversation{number: user.number + len(users), turn: 1}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
