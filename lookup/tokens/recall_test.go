package tokens

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The age of what is evicted is that of the blocks that were missing, not of those that were found.
func TestEvictedAge(t *testing.T) {
	var r recall
	for i := range minRecalls {
		assert.Zero(t, r.evictedAge())
		r.add(1, int64(10*time.Second), true)
		r.add(1, int64([]time.Duration{time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour}[i%4]), false)
	}
	assert.InEpsilon(t, time.Hour, r.evictedAge(), 1./ageSteps)
}
