package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	hitline "github.com/hitline/hitline/lookup/client"
)

// rival is one that is measured, in one way. Its server runs.
type rival struct {
	name    string
	way     string
	client  string // who asks
	version string // of the server, and of the client if it is another's
	zmtp    bool   // it is asked over ZeroMQ
	allMiss bool   // it finds nothing, whatever is asked

	server *process.Process // nil if it was not started here
	data   *data            // what is stored with it; shared by the rivals that find it there; nil: nothing
	// connect makes a client. The chains are stored, and cut afterwards.
	connect func(ctx context.Context, w *lookups) (client, error)
}

// in returns the rival asked in a way, by a client.
func (r rival) in(way, client string, connect func(context.Context, *lookups) (client, error)) *rival {
	r.way, r.client, r.connect = way, client, connect
	return &r
}

// data is what a server holds.
type data struct {
	fill func(ctx context.Context, w *lookups) error
	done bool
}

// open stores the chains, unless another rival has stored them, and connects.
func (r *rival) open(ctx context.Context, w *lookups) (client, error) {
	if r.data != nil && !r.data.done {
		if err := r.data.fill(ctx, w); err != nil {
			return nil, fmt.Errorf("storing: %w", err)
		}
		r.data.done = true
	}
	return r.connect(ctx, w)
}

// String names the rival for errors and notes.
func (r *rival) String() string { return r.name + " (" + r.way + ")" }

// answer is the hit of a lookup in tokens, and how long it took.
type answer struct {
	hit  uint32
	took time.Duration
}

// client is a connection to a rival. Not safe for concurrent use.
type client interface {
	// prepare makes what the client has at hand when it asks. It is called once, after
	// the chains were cut.
	prepare(ctx context.Context) error
	// ask sends lookups, one after the other, and appends their answers to answers.
	ask(ctx context.Context, lookups []workload.Lookup, answers []answer) ([]answer, error)
	close()
}

// pipeliner is a client that can have several requests under way.
type pipeliner interface {
	// pipeline sends lookups, depth of them under way, and appends their hits to hits.
	pipeline(lookups []workload.Lookup, depth int, hits []uint32) ([]uint32, error)
}

// single is a client in this process. It sends one lookup.
type single interface {
	prepare(ctx context.Context) error
	askOne(ctx context.Context, l workload.Lookup) (answer, error)
	close()
}

// oneByOne makes a client of a single.
type oneByOne struct{ single }

func (c oneByOne) ask(ctx context.Context, lookups []workload.Lookup, answers []answer) ([]answer, error) {
	for _, l := range lookups {
		if ctx.Err() != nil {
			return answers, context.Cause(ctx)
		}
		a, err := c.askOne(ctx, l)
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// prepared is the part of a client that has nothing to prepare.
type prepared struct{}

func (prepared) prepare(context.Context) error { return nil }

// lost marks an error of a connection, and a refusal as such.
func lost(err error) error {
	if errors.Is(err, hitline.ErrRefused) {
		return fmt.Errorf("%w: %w", measure.ErrRefused, err)
	}
	return wire.Lost(err)
}
