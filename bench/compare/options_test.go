package compare

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// small returns options that are good and quick.
func small() Options {
	return Options{
		Hashes: []int{20, 300}, BlockSize: 16, Entries: 400, Rounds: 3, TimePerRival: 15 * time.Millisecond, Seed: 1,
		HitShare: 0.5, MissAt: workload.MissRandom, Timeout: 20 * time.Second,
		OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

// Every rival has a usual client, or a reason for having none.
func TestWays(t *testing.T) {
	for _, name := range Rivals() {
		client, why := UsualClient(name)
		assert.NotEqual(t, client == "", why == "", "%s: one of both", name)
		assert.NotEmpty(t, rivalKinds[name].note)
	}
	assert.Len(t, rivalKinds, len(Rivals()))
	assert.Equal(t, []string{Prepared}, waysOf(Floor))
	assert.Equal(t, Ways(), waysOf(Hitline))
	assert.Equal(t, []string{Prepared, Usual}, waysOf(Python))
}

// The largest are left out first, and hitline never.
func TestExceeding(t *testing.T) {
	all := Rivals()
	assert.Empty(t, exceeding(all, 1000, 1<<40))
	assert.Equal(t, []string{Python}, exceeding([]string{Floor, Hitline, PythonBare, Python}, 1000, 1000*(100+300)))
	assert.Equal(t, []string{Python, PythonBare}, exceeding([]string{Floor, Hitline, PythonBare, Python}, 1000, 1000*100))
	assert.NotContains(t, exceeding(all, 1000, 0), Hitline)
	assert.Contains(t, whyExceeding(Python, 64, 1<<20, 1<<30), "at 64 hashes it needs about 500 MiB of memory, of 1024 MiB")
	assert.EqualValues(t, 5<<10, availableMemory([]byte("MemTotal: 9 kB\nMemAvailable:       5 kB\nX: 1\n")))
	assert.Zero(t, availableMemory(nil))
}

func TestLastLevelCache(t *testing.T) {
	dir := fstest.MapFS{}
	assert.Zero(t, lastLevelCache(dir))
	for name, size := range map[string]string{"index0": "48K\n", "index2": "2048K\n", "index3": "266240K\n", "index4": "?"} {
		dir[name+"/size"] = &fstest.MapFile{Data: []byte(size)}
	}
	assert.EqualValues(t, 260<<20, lastLevelCache(dir))
	dir["index5/size"] = &fstest.MapFile{Data: []byte("1G\n")}
	assert.EqualValues(t, 1<<30, lastLevelCache(dir))
}

// Whatever the number of hashes, the requests and the index do not fit the cache together, or
// the share of it that counts.
func TestRotate(t *testing.T) {
	for _, test := range []struct{ rotate, most, cache, want int64 }{
		{64, 0, 260, 64}, {0, 64, 260, 32}, {0, 64, 20, 10}, {0, 64, 0, 32}, {64, 64, 260, 64}, {10, 64, 260, 32},
	} {
		assert.Equal(t, test.want, Options{Rotate: test.rotate, MaxCache: test.most}.rotate(test.cache), "%+v", test)
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, small().Validate())
	for want, break_ := range map[string]func(*Options){
		"no number of hashes":                   func(o *Options) { o.Hashes = nil },
		"0 hashes; give 1 to 2000000":           func(o *Options) { o.Hashes = []int{5, 0} },
		"2000001 hashes;":                       func(o *Options) { o.Hashes = []int{2_000_001} },
		"[5 6 5]: one of them is":               func(o *Options) { o.Hashes = []int{5, 6, 5} },
		"0 tokens a hash;":                      func(o *Options) { o.BlockSize = 0 },
		"-1 entries;":                           func(o *Options) { o.Entries = -1 },
		"5000 MiB of requests;":                 func(o *Options) { o.Rotate = 5000 << 20 },
		"-1 MiB of cache;":                      func(o *Options) { o.MaxCache = -1 << 20 },
		"0 rounds;":                             func(o *Options) { o.Rounds = 0 },
		"a duration of 0s;":                     func(o *Options) { o.TimePerRival = 0 },
		"-1 requests a round;":                  func(o *Options) { o.Requests = -1 },
		"-1 requests a batch;":                  func(o *Options) { o.Batch = -1 },
		"1025 requests under way; give 0 to":    func(o *Options) { o.Pipeline = 1025 },
		"a share of 1.5 of chains that hit;":    func(o *Options) { o.HitShare = 1.5 },
		"a miss at \"end\";":                    func(o *Options) { o.MissAt = "end" },
		"a rival \"rédis\"; there are floor, h": func(o *Options) { o.Only = []string{Floor, "rédis"} },
		"a way \"fast\"; there are prepared":    func(o *Options) { o.Ways = []string{"fast"} },
		"a timeout of 0s;":                      func(o *Options) { o.Timeout = 0 },
		"TLS is not measured beside":            func(o *Options) { o.Connect = "tls://h:1" },
	} {
		o := small()
		break_(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions, want)
		assert.ErrorContains(t, err, want)
	}
}

func TestWants(t *testing.T) {
	o := small()
	assert.True(t, o.wants(Python, Usual))
	assert.False(t, o.wants(Hitline, Anchored), "only if it is named")
	o.Only, o.Ways = []string{Floor}, []string{Prepared}
	assert.True(t, o.wants(Floor, Prepared))
	assert.True(t, o.wantsAny(Hitline))
	assert.False(t, o.wantsAny(Python))
	assert.False(t, o.wants(Hitline, Usual))
	o.Ways = []string{Anchored}
	assert.True(t, o.wants(Floor, Prepared), "beside lookups by anchors")
	assert.False(t, o.wants(Hitline, Prepared))
}
