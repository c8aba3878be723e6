package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// What a pool request has of the options, in any order of them.
func TestPoolRequest(t *testing.T) {
	info := WithClientInfo(map[string]any{"process": "0a", "rank": 1})
	pool := coordinator.Pool{HashBlockSize: 16, SchedulerBlockSize: 32, Groups: []coordinator.Group{}}
	for want, opts := range map[string][]Option{
		``:                 {info},
		`{"name":""}`:      {WithPoolName("")},
		`{"name":"llama"}`: {WithPoolName("llama")},
		`{"client":{"process":"0a","rank":1},"name":"llama"}`:                                                            {info, WithPoolName("llama")},
		`{"client":{"process":"0a","rank":1},"hash_block_size":16,"scheduler_block_size":32,"groups":[]}`:                {WithPool("", pool), info},
		`{"client":{"process":"0a","rank":1},"hash_block_size":16,"scheduler_block_size":32,"groups":[],"name":"llama"}`: {WithPool("llama", pool), info},
	} {
		text, err := newConfig(opts).description()
		require.NoError(t, err)
		if want == "" {
			require.Nil(t, text)
			continue
		}
		require.JSONEq(t, want, string(text))
	}
	_, err := Dial(background, fakeAddr, WithPoolName(""), WithClientInfo(map[string]any{"f": func() {}}))
	require.ErrorIs(t, err, ErrRequest)
}
