package mooncake

import (
	"context"
	"sync"
)

// maxParts is in how many parts keys are asked at the same time. A master serves each
// connection by one thread. On one with two cores, 15,000 keys took 0.6 of the time in two
// parts, and more than in one in four.
const maxParts = 2

// minPartKeys is the least number of keys of a part. For 1,875 keys, about two
// milliseconds of a master, two parts were not always faster than one.
const minPartKeys = 2048

// exist asks for keys and writes one answer for each. Many keys are asked in parts at the same
// time, on connections that are free. The error is that of the first part that failed.
func (c *Client) exist(ctx context.Context, keys []string, answers []int) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	parts := 1
	for parts < min(maxParts, len(keys)/minPartKeys, cap(c.sem)/2) && c.tryAcquire() { // half is left to others
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
