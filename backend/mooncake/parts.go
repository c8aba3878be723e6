package mooncake

import (
	"context"
	"sync"
)

// maxParts bounds the parts that the keys of one call are split into. A master serves each
// connection by one thread. On a machine with two cores, 15,000 keys took 0.6 of the time in
// two parts, but longer in four parts than in one.
const maxParts = 2

// minPartKeys is the least number of keys of a part. 1,875 keys take a master about two
// milliseconds; for so few, two parts were not always faster than one.
const minPartKeys = 2048

// exist asks for keys and writes one answer for each. It splits many keys into parts, each on a
// connection of its own, and asks for them at the same time. It waits for one connection, and
// takes more only if they are free. It returns when all parts have ended, with the error of the
// first failed part in the order of the keys.
func (c *Client) exist(ctx context.Context, keys []string, answers []int) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	parts := 1
	for parts < min(maxParts, len(keys)/minPartKeys, cap(c.sem)/2) && c.tryAcquire() { // one call takes at most half
		parts++
	}
	errs := make([]error, parts)
	ask := func(i int) {
		defer c.release()
		from, to := len(keys)*i/parts, len(keys)*(i+1)/parts
		errs[i] = c.withConn(ctx, func(cn *conn) error {
			return cn.batchExist(keys[from:to], c.cfg.Tenant, answers[from:to])
		})
	}
	var others sync.WaitGroup
	for i := 1; i < parts; i++ {
		others.Go(func() { ask(i) })
	}
	ask(0)
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
