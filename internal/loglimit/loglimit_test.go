package loglimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLimit(t *testing.T) {
	var l Limit
	at := time.Unix(1, 0)
	for i := range 100 {
		suppressed, ok := l.Admit(at)
		assert.Equal(t, i == 0, ok)
		assert.Zero(t, suppressed)
	}
	suppressed, ok := l.Admit(at.Add(Interval))
	assert.True(t, ok)
	assert.Equal(t, 99, suppressed)
}
