package replay

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/workload"
)

// queueLength is how many requests wait for a connection at most. One that is
// further behind holds up the others.
const queueLength = 64

// split deals the requests of a trace out to players so that those that share more
// than the opening of all of them go to one player, in order.
type split struct {
	o       Options
	players []*player
	opening []uint64 // the ids that all requests begin with

	// What follows is written by the goroutine that reads the trace.
	queues []chan workload.Request // one a player
	open   bool                    // the opening is stored, and each player plays its queue
	routes map[uint64]int          // from the id after the opening to the player
	load   []int64                 // ids and requests given to each player
}

// opening returns the ids that all requests begin with but those without any, if
// the trace is to be split.
func (o Options) opening(ctx context.Context) ([]uint64, error) {
	if !o.Split {
		return nil, nil
	}
	var shared []uint64
	began := false
	err := o.each(ctx, func(r workload.Request) error {
		switch {
		case len(r.IDs) == 0:
		case !began:
			began, shared = true, slices.Clone(r.IDs)
		default:
			shared = shared[:sharedIDs(shared, r.IDs)]
		}
		return nil
	})
	return shared, err
}

// sharedIDs returns how many leading ids a and b share.
func sharedIDs(a, b []uint64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func newSplit(o Options, players []*player, opening []uint64) *split {
	s := &split{
		o: o, players: players, opening: opening,
		routes: make(map[uint64]int), load: make([]int64, len(players)),
	}
	for range players {
		s.queues = append(s.queues, make(chan workload.Request, queueLength))
	}
	return s
}

// run replays the trace over the players. It returns when all of them are done.
func (s *split) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer s.closeQueues()
		return s.o.each(ctx, func(r workload.Request) error { return s.deal(ctx, group, r) })
	})
	return group.Wait()
}

// deal gives a request to its player. Until the opening is stored, one request is
// played at a time: which of two at once would store it cannot be known.
func (s *split) deal(ctx context.Context, group *errgroup.Group, r workload.Request) error {
	to := s.route(r.IDs)
	if s.open {
		r.IDs = slices.Clone(r.IDs) // they are valid during the call only
		select {
		case s.queues[to] <- r:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p := s.players[to]
	if err := p.play(ctx, r); err != nil {
		return err
	}
	if p.model.Known(s.opening) == len(s.opening) { // else the store was refused
		s.start(ctx, group)
	}
	return nil
}

// start tells every player that the opening is stored, and has it play its queue
// from now on.
func (s *split) start(ctx context.Context, group *errgroup.Group) {
	s.open = true
	for i, p := range s.players {
		p.model.Add(s.opening)
		group.Go(func() error { return p.playQueue(ctx, s.queues[i]) })
	}
}

// closeQueues says that no requests follow.
func (s *split) closeQueues() {
	for _, q := range s.queues {
		close(q)
	}
}

// route returns the player of a request with these ids, and counts it. What has no
// player yet goes to the one that was given the least.
func (s *split) route(ids []uint64) int {
	to := slices.Index(s.load, slices.Min(s.load))
	if len(ids) > len(s.opening) {
		key := ids[len(s.opening)]
		if known, ok := s.routes[key]; ok {
			to = known
		}
		s.routes[key] = to
	}
	s.load[to] += int64(len(ids)) + 1
	return to
}

// playQueue plays requests until the queue is closed and empty.
func (p *player) playQueue(ctx context.Context, queue <-chan workload.Request) error {
	for r := range queue {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.play(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
