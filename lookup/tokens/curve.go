package tokens

import (
	"math"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// curve tells how many of the blocks that were asked for an LRU pool of any size would have held: by their stack distances,
// which is how many other blocks were asked for since. It counts the last day, by decay.
//
// The distances are those of a sample. One block may be asked for by every prompt, so whether it is in the sample decides much;
// but how many blocks were asked for is known exactly, and what the sample lacks of them, or has too many, is of such blocks:
// it is added to the shortest distances.
type curve struct {
	distances [curveSteps]float64 // blocks, by the step of their distance
	sampled   float64             // blocks that the sample stands for, those asked for the first time included
	asked     float64             // blocks that were asked for: before what the rules can reach, and new ones
	found     float64             // of these, blocks that the pool gave
	decayed   int64
}

const (
	// stepsPerDoubling is how many steps of distance a doubling has.
	stepsPerDoubling = 8
	curveSteps       = 40 * stepsPerDoubling
	// dayTime is in which time what is counted falls to half.
	dayTime = 24 * time.Hour
)

// decayFactor returns by what counters are multiplied that fall to half in a day, and false if too little time has passed.
func decayFactor(now int64, since *int64) (factor float64, due bool) {
	if *since == 0 {
		*since = now
	}
	passed := now - *since
	if passed < int64(time.Minute) {
		return 1, false
	}
	*since = now
	return math.Exp2(-float64(passed) / float64(dayTime)), true
}

func (c *curve) decay(now int64) {
	factor, due := decayFactor(now, &c.decayed)
	if !due {
		return
	}
	for i := range c.distances {
		c.distances[i] *= factor
	}
	c.sampled *= factor
	c.asked *= factor
	c.found *= factor
}

// distanceStep returns the step of a distance. Step 0 is that of distances below 2.
func distanceStep(distance float64) int {
	if distance < 2 {
		return 0
	}
	return min(int(math.Log2(distance)*stepsPerDoubling)-stepsPerDoubling+1, curveSteps-1)
}

// stepEnd returns the distance at which a step ends.
func stepEnd(step int) float64 {
	return math.Exp2(float64(step)/stepsPerDoubling + 1)
}

// measure counts the stack distances of the blocks of a request that are asked for the first time. All are measured before any
// is touched. A hit ends where a scheduler block does, so the distance of each block is the largest of its scheduler block.
func (a *Account) measure(req *request, r *Ask, samples []sample, now int64) {
	a.curve.decay(now)
	reachable := int(a.pool.Reachable(r.Prompt, max(req.known.atLeast, r.Found)) / a.pool.HashBlock)
	perScheduler, unit, distance := int(max(a.pool.SchedulerBlock/a.pool.HashBlock, 1)), -1, 0.
	for i := len(samples) - 1; i >= 0; i-- {
		s := samples[i]
		if !a.table.judges(s.fingerprint) || s.block >= reachable && s.block < req.known.atLeast {
			continue
		}
		weight := a.weight(r, s.block)
		a.curve.sampled += weight
		if s.block/perScheduler != unit {
			unit, distance = s.block/perScheduler, 0
		}
		if e := a.table.get(s.fingerprint); e == nil || a.isEmptied(e) {
			distance = math.Inf(1)
		} else {
			distance = max(distance, float64(a.table.distance(e))/share(a.table.threshold))
		}
		if !math.IsInf(distance, 1) {
			a.curve.distances[distanceStep(distance)] += weight
		}
	}
}

// count counts the blocks of a request that were asked for.
func (c *curve) count(s *split, hashBlock int64) {
	c.asked += float64(s.pool+s.lost+s.new) / float64(hashBlock)
	c.found += float64(s.pool) / float64(hashBlock)
}

// curveFrom and curveTo are the sizes of which a curve tells, in powers of two blocks.
const curveFrom, curveTo = 10, 30

// multiples are the sizes of which a curve tells if that of the pool is known.
var multiples = []struct {
	name string
	by   float64
}{{"0.25", .25}, {"0.5", .5}, {"1", 1}, {"2", 2}, {"4", 4}, {"inf", math.Inf(1)}}

// multiplesOf returns the hit shares of pools of multiples of a size.
func (c *curve) multiplesOf(size int64) (sizes []api.SizedPool) {
	for _, m := range multiples {
		of := api.SizedPool{Size: m.name, HitShare: c.hitShare(m.by * float64(size))}
		if !math.IsInf(m.by, 1) {
			of.Blocks = int64(m.by * float64(size))
		}
		sizes = append(sizes, of)
	}
	return sizes
}

// measured returns the share of the blocks asked for that the pool gave.
func (c *curve) measured() float64 { return c.found / max(c.asked, 1) }

// sizes returns the hit shares of pools up to the first that holds all.
func (c *curve) sizes() []api.SizedPool {
	sizes, all := []api.SizedPool{}, c.hitShare(math.Inf(1))
	for log := curveFrom; log <= curveTo; log++ {
		blocks := int64(1) << log
		share := c.hitShare(float64(blocks))
		sizes = append(sizes, api.SizedPool{Blocks: blocks, HitShare: share})
		if all-share < 1e-4 {
			break
		}
	}
	return sizes
}

// hitShare returns the share of the blocks asked for that an LRU pool of some blocks would have held.
func (c *curve) hitShare(blocks float64) float64 {
	if c.asked == 0 {
		return 0
	}
	held := c.asked - c.sampled
	begin := 0.
	for i, n := range c.distances {
		end := stepEnd(i)
		if end > blocks {
			held += n * max(0, blocks-begin) / (end - begin)
			break
		}
		held += n
		begin = end
	}
	return min(max(held/c.asked, 0), 1)
}
