package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/growth"
)

// What a later server adds to its replies changes nothing.
func TestGrownReplies(t *testing.T) {
	growth.Each(t, func(t *testing.T, s growth.Servers) string {
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
		return growth.JSON(t, pool) + growth.JSON(t, instance) + growth.JSON(t, stat) + growth.JSON(t, explanation) +
			growth.JSON(t, refused) + partly.Error()
	})
}
