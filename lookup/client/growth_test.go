package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fakeserver"
)

// What a later server adds to its replies changes nothing.
func TestGrownReplies(t *testing.T) {
	fakeserver.EachGrowth(t, func(t *testing.T, s *fakeserver.Server) string {
		c, err := Dial(background, s.Lookup, WithPoolName("p"), WithToken(""))
		require.NoError(t, err)
		defer c.Close()
		pool, ok := c.Pool()
		require.True(t, ok)
		instance, err := c.Ping(background)
		require.NoError(t, err)
		stat, err := c.Stat(background)
		require.NoError(t, err)
		explanation, err := c.Explain(background, 64, someHashes)
		require.NoError(t, err)
		var refused *RefusedError
		require.ErrorAs(t, c.Store(background, coordinator.GroupRank{}, someHashes), &refused)
		partly := c.Reset(background)
		require.Error(t, partly)
		return fakeserver.JSON(t, pool) + fakeserver.JSON(t, instance) + fakeserver.JSON(t, stat) + fakeserver.JSON(t, explanation) +
			fakeserver.JSON(t, refused) + partly.Error()
	})
}
