package lookup

import (
	"context"
	"fmt"
)

// turn is what a lookup over a backend has of what all of them share: a processor for
// its keys and answers, and memory for its keys. It waits for either no longer than
// its context lasts, and for neither while it holds the other's.
type turn struct {
	remote *remote
	ctx    context.Context
	ask    func(keys []string) ([]int, error)
	rest   func() // gives the processor back
	bytes  int64  // of memory, for the keys and answers at hand
	late   bool   // the last call failed, or was not made, because ctx has ended
}

// turn takes a turn on a processor. Whoever has it must call end.
func (r *remote) turn(ctx context.Context) *turn {
	return &turn{remote: r, ctx: ctx, ask: r.exists(ctx), rest: r.work(ctx)}
}

// room is the coordinator's Room. A request whose keys alone take more than a half of
// the memory that there is for all requests is refused: it would keep the others waiting.
func (t *turn) room(bytes int64) error {
	r := t.remote
	t.giveBack() // what the round before took
	if most := r.cfg.MaxKeyBytes / 2; bytes > most {
		r.rejected.Add(1)
		t.late = false
		return fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most)
	}
	if !r.keyRoom.TryAcquire(bytes) {
		t.rest()
		t.rest = func() {}
		if r.keyRoom.Acquire(t.ctx, bytes) != nil {
			_, err := t.ask(nil) // it only notes that it is too late
			t.late = true
			return err
		}
		t.rest = r.work(t.ctx)
	}
	t.bytes = bytes
	return nil
}

// exists asks the backend, and rests meanwhile.
func (t *turn) exists(keys []string) ([]int, error) {
	t.rest()
	t.rest = func() {} // should the backend panic
	answers, err := t.ask(keys)
	t.late = err != nil && ended(t.ctx) != nil
	t.rest = t.remote.work(t.ctx)
	return answers, err
}

func (t *turn) giveBack() {
	t.remote.keyRoom.Release(t.bytes)
	t.bytes = 0
}

func (t *turn) end() {
	t.giveBack()
	t.rest()
}
