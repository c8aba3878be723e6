package fleet

// epochsPerTTL is how many epochs a predicted block counts, that of the prediction included. So it counts for at
// least three quarters of the time to live.
const epochsPerTTL = 4

// epoch returns the current epoch, from epochsPerTTL on. Epochs have a quarter of the time to live each. The first one
// begins with the fleet.
func (f *Fleet) epoch() uint32 {
	quarter := f.cfg.PredictTTL / epochsPerTTL
	return uint32(max(0, f.cfg.now().Sub(f.start)/quarter))&^predictedIn + epochsPerTTL
}

// expire makes epochs not count that have expired in an epoch, and returns the first one that counts.
func (c *core) expire(epoch uint32) uint32 {
	c.oldest = c.oldestAt(epoch)
	return c.oldest
}

// oldestAt returns the first epoch that counts in an epoch.
func (c *core) oldestAt(epoch uint32) uint32 { return max(c.oldest, epoch-epochsPerTTL+1) }

// oldest returns the first epoch that counts now. It does not read the clock if nothing is predicted.
func (f *Fleet) oldest() uint32 {
	if f.core.firstPredicted == 0 {
		return f.core.oldest
	}
	return f.core.oldestAt(f.epoch())
}

// epochCounts is how many predicted entries a holder has by epoch. At most epochsPerTTL epochs count at a time.
type epochCounts struct {
	ring [epochsPerTTL]struct {
		epoch   uint32
		entries int
	}
}

func (e *epochCounts) add(epoch uint32) {
	at := &e.ring[epoch%epochsPerTTL]
	if at.epoch != epoch {
		at.epoch, at.entries = epoch, 0
	}
	at.entries++
}

func (e *epochCounts) remove(epoch uint32) {
	if at := &e.ring[epoch%epochsPerTTL]; at.epoch == epoch && at.entries > 0 {
		at.entries--
	}
}

// count returns the entries of epochs from oldest on.
func (e *epochCounts) count(oldest uint32) int {
	n := 0
	for i := range e.ring {
		if e.ring[i].epoch >= oldest {
			n += e.ring[i].entries
		}
	}
	return n
}
