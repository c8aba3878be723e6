package compare

import (
	"context"
	"fmt"
	"time"
)

// rival is one that is measured, in one way. Its server runs.
type rival struct {
	name    string
	way     string
	client  string // who asks
	version string // of the server, and of the client if it is another's
	note    string // what limits the meaning of its figures
	zmtp    bool   // it is asked over ZeroMQ
	allMiss bool   // it finds nothing, whatever is asked

	data *data // what is stored with it; shared by the rivals that find it there
	// connect makes a client. The chains are stored, and cut afterwards.
	connect func(ctx context.Context, w *chainSet) (client, error)
}

// data is what a server holds.
type data struct {
	fill func(ctx context.Context, w *chainSet) error
	done bool
}

// open stores the chains, unless another rival has stored them, and connects.
func (r *rival) open(ctx context.Context, w *chainSet) (client, error) {
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

// answer is the hit of a request in tokens, and how long it took.
type answer struct {
	hit  uint32
	took time.Duration
}

// client is a connection to a rival. Not safe for concurrent use.
type client interface {
	// prepare makes what the client has at hand when it asks. It is called once, after
	// the chains were cut.
	prepare() error
	// ask sends requests, one after the other, and appends their answers to answers.
	ask(ctx context.Context, requests []request, answers []answer) ([]answer, error)
	close()
}

// single is a client in this process. It asks for one request.
type single interface {
	prepare() error
	askOne(ctx context.Context, r request) (answer, error)
	close()
}

// oneByOne makes a client of a single.
type oneByOne struct{ single }

func (c oneByOne) ask(ctx context.Context, requests []request, answers []answer) ([]answer, error) {
	for _, r := range requests {
		if ctx.Err() != nil {
			return answers, context.Cause(ctx)
		}
		a, err := c.askOne(ctx, r)
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}
