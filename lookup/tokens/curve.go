package tokens

import (
	"math"
	"math/bits"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// curve tells how many of the blocks that were asked for an LRU pool of any size would have held: by their stack distances,
// which is how many other blocks were asked for since. It counts the last day, by decay.
//
// The distances are those of a sample. One block may be asked for by every prompt, so whether it is in the sample decides much;
// but how many blocks were asked for is known exactly, by their positions in the prompts. What the sample lacks of them, or has too
// many, beyond what chance does, is of such blocks: see popular.
type curve struct {
	distances [curveSteps]float64 // blocks, by the step of their distance
	// By the binary logarithm of their positions: blocks that were asked for, before what the rules can reach and new ones; and blocks
	// that the sample stands for.
	asked, sampled [positionClasses]float64
	squares        float64 // of what each sample stands for
	found          float64 // of the blocks asked for, those that the pool gave
	decayed        int64
}

const (
	// stepsPerDoubling is how many steps of distance a doubling has.
	stepsPerDoubling = 8
	curveSteps       = 40 * stepsPerDoubling
	// positionClasses is how many powers of two the positions of blocks have. Later blocks are of the last one.
	positionClasses = 20
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
	for i := range c.asked {
		c.asked[i] *= factor
		c.sampled[i] *= factor
	}
	c.squares *= factor
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
func (a *Account) measure(req *request, r *Event, samples []sample, now int64) {
	a.curve.decay(now)
	reachable := int(a.pool.Reachable(r.Prompt, max(req.known.atLeast, r.Found)) / a.pool.HashBlock)
	perScheduler, unit, distance := int(max(a.pool.SchedulerBlock/a.pool.HashBlock, 1)), -1, 0.
	for i := len(samples) - 1; i >= 0; i-- {
		s := samples[i]
		if !a.table.judges(s.fingerprint) || s.block >= reachable && s.block < req.known.atLeast {
			continue
		}
		weight := a.weight(r, s.block)
		a.curve.sampled[positionClass(s.block)] += weight
		a.curve.squares += weight * weight
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

// positionClass returns the class of a block's position in its prompt.
func positionClass(block int) int { return min(bits.Len(uint(block)), positionClasses-1) }

// count counts the blocks of a request that were asked for. end is the token at which its whole blocks end.
func (c *curve) count(s *split, end, hashBlock int64) {
	c.countRange(s.engine, s.engine+s.pool+s.lost, hashBlock)
	c.countRange(end-s.new, end, hashBlock)
	c.found += float64(s.pool) / float64(hashBlock)
}

// countRange counts the blocks between two tokens.
func (c *curve) countRange(from, to, hashBlock int64) {
	for from < to {
		class := positionClass(int(from / hashBlock))
		end := to
		if class < positionClasses-1 {
			end = min(to, int64(1)<<class*hashBlock)
		}
		c.asked[class] += float64(end-from) / float64(hashBlock)
		from = end
	}
}

// popular returns how many blocks the sample lacks because a few are asked for by very many prompts, negative if it has some
// of these. Chance alone makes a class of positions differ by about the root of its blocks times what a sample stands for.
func (c *curve) popular() (blocks float64) {
	each := c.squares / max(sum(c.sampled[:]), 1)
	for i, asked := range c.asked {
		lacks, chance := asked-c.sampled[i], asked*each
		if lacks != 0 {
			blocks += lacks * lacks * lacks / (lacks*lacks + chanceFactor*chance)
		}
	}
	return blocks
}

// chanceFactor is how much larger than that of single blocks the variance of a sample is taken to be: prompts have many in common.
const chanceFactor = 16

func sum(of []float64) (all float64) {
	for _, n := range of {
		all += n
	}
	return all
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
func (c *curve) measured() float64 { return c.found / max(sum(c.asked[:]), 1) }

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
	asked, sampled, popular := sum(c.asked[:]), sum(c.sampled[:]), c.popular()
	if asked == 0 || sampled == 0 {
		return 0
	}
	held, begin := 0., 0.
	for i, n := range c.distances {
		end := stepEnd(i)
		if end > blocks {
			held += n * max(0, blocks-begin) / (end - begin)
			break
		}
		held += n
		begin = end
	}
	held = popular + held*(asked-popular)/sampled
	return min(max(held/asked, 0), 1)
}
