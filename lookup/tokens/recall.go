package tokens

import (
	"math"
	"math/bits"
)

// recall tells how long the pool remembers: of the blocks that were in the pool, how many are still found when they are asked
// for again, by the age of what was last seen of them.
type recall struct {
	ages    [recallAges]struct{ found, missing float64 }
	decayed int64
}

const (
	// ageSteps is how many steps of age a doubling has, and minAge the end of the first: 2^27 ns, an eighth of a second.
	ageSteps   = 4
	minAgeLog  = 27
	recallAges = (63 - minAgeLog) * ageSteps
	// minRecalls is how many blocks of an age, or older, must have been asked for again to say something.
	minRecalls = 16
)

func ageStep(age int64) int {
	log := bits.Len64(uint64(max(age, 1))) - 1
	if log < minAgeLog {
		return 0
	}
	fraction := float64(age)/float64(int64(1)<<log) - 1
	return min((log-minAgeLog)*ageSteps+int(fraction*ageSteps), recallAges-1)
}

// ageOf returns the least age of a step.
func ageOf(step int) int64 {
	return int64(math.Ldexp(1+float64(step%ageSteps)/ageSteps, minAgeLog+step/ageSteps))
}

// add adds a block that was last asked for or seen whole age ago.
func (r *recall) add(now, age int64, found bool) {
	if factor, due := decayFactor(now, &r.decayed); due {
		for i := range r.ages {
			r.ages[i].found *= factor
			r.ages[i].missing *= factor
		}
	}
	step := &r.ages[ageStep(age)]
	if found {
		step.found++
	} else {
		step.missing++
	}
}

// remembers returns the age from which on less than half of the blocks are found, 0 if there is none.
func (r *recall) remembers() int64 {
	for i := range r.ages {
		if a := &r.ages[i]; a.found+a.missing >= minRecalls && a.found < a.missing {
			return ageOf(i)
		}
	}
	return 0
}

// evictedAge returns the age that half of the blocks which were missing had at least, 0 if there are few.
func (r *recall) evictedAge() int64 {
	all := 0.
	for i := range r.ages {
		all += r.ages[i].missing
	}
	if all < minRecalls {
		return 0
	}
	older := all
	for i := range r.ages {
		if older -= r.ages[i].missing; older <= all/2 {
			return ageOf(i)
		}
	}
	return 0
}
