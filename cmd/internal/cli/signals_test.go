package cli

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped atomic.Bool
		go afterGrace(func() { stopped.Store(true) })
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		assert.False(t, stopped.Load())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.True(t, stopped.Load())
	})
}
