package redis

import "context"

// maxSmallKeys is the number of keys above which a call of Exists is large.
const maxSmallKeys = 4096

// largeCalls has an element for each large call that runs. Together they use at most three
// quarters of the connections to a server, and of several all but one. So a small call that
// comes meanwhile has a connection, or with one connection waits for one pipeline of readBatch
// keys.
type largeCalls chan struct{}

func newLargeCalls(poolSize int) largeCalls {
	kept := poolSize / 4
	if kept == 0 && poolSize > 1 {
		kept = 1
	}
	return make(largeCalls, poolSize-kept)
}

// begin waits until a call for so many keys may run, or for the end of ctx. The caller calls
// end.
func (l largeCalls) begin(ctx context.Context, numKeys int) (end func(), err error) {
	if numKeys <= maxSmallKeys {
		return func() {}, nil
	}
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
