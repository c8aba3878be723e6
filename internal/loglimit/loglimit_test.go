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

	at = at.Add(Interval)
	assert.Zero(t, l.Take(at, true), "none was suppressed")
	for range 3 {
		l.Admit(at)
	}
	assert.Zero(t, l.Take(at.Add(Interval-1), false))
	assert.Equal(t, 3, l.Take(at.Add(Interval), false))
	l.Admit(at.Add(Interval))
	assert.Equal(t, 1, l.Take(at.Add(Interval), true))
}
