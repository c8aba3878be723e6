//go:build linux

package compare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// small returns options that are good and quick.
func small() Options {
	return Options{
		Hashes: []int{20, 300}, Entries: 400, Rounds: 3, TimePerRival: 15 * time.Millisecond, Seed: 1,
		HitShare: 0.5, Timeout: 20 * time.Second,
		OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, small().Validate())
	for want, spoil := range map[string]func(*Options){
		"no number of hashes":                   func(o *Options) { o.Hashes = nil },
		"0 hashes; give 1 to 2000000":           func(o *Options) { o.Hashes = []int{5, 0} },
		"2000001 hashes;":                       func(o *Options) { o.Hashes = []int{2_000_001} },
		"[5 6 5]: one of them is":               func(o *Options) { o.Hashes = []int{5, 6, 5} },
		"-1 entries;":                           func(o *Options) { o.Entries = -1 },
		"5000 MiB of requests;":                 func(o *Options) { o.Rotate = 5000 << 20 },
		"0 rounds;":                             func(o *Options) { o.Rounds = 0 },
		"a duration of 0s;":                     func(o *Options) { o.TimePerRival = 0 },
		"1025 requests under way; give 0 to":    func(o *Options) { o.Pipeline = 1025 },
		"a share of 1.5 of chains that hit;":    func(o *Options) { o.HitShare = 1.5 },
		"a rival \"rédis\"; there are raw, hit": func(o *Options) { o.Only = []string{RawSocket, "rédis"} },
		"a timeout of 0s;":                      func(o *Options) { o.Timeout = 0 },
	} {
		o := small()
		spoil(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions, want)
		assert.ErrorContains(t, err, want)
	}
}
