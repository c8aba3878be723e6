package compare

import (
	"bytes"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// workloadOf returns a workload with so many entries.
func workloadOf(hashes, entries int, seed uint64) *chainSet {
	return newWorkload(Options{HashTokens: 16, Entries: entries, Seed: seed}, hashes)
}

// Each request that misses does so at its block, with a hash of its own.
func TestWorkload(t *testing.T) {
	const hashes, tokens = 30, 16
	for at, right := range map[string]func(block int) bool{
		MissFirst:  func(block int) bool { return block == 0 },
		MissMiddle: func(block int) bool { return block == 15 },
		MissTail:   func(block int) bool { return block == 29 },
		MissRandom: func(block int) bool { return block < hashes },
	} {
		whole, w := workloadOf(hashes, 600, 1), workloadOf(hashes, 600, 1)
		w.cut(0.9, at)
		require.Equal(t, 20, w.len())
		absent, asked := map[string]bool{}, map[int]int{}
		for n := range 3 * w.len() { // three rotations
			r := w.request(n)
			w.put(r)
			asked[r.chain]++
			stored, sent := whole.strings(r.chain), w.strings(r.chain)
			block := 0
			for block < hashes && stored[block] == sent[block] {
				block++
			}
			assert.Equal(t, block, r.block)
			assert.EqualValues(t, block*tokens, w.want(r))
			if block < hashes {
				assert.True(t, right(block), "%s: %d", at, block)
				for i := block + 1; i < hashes; i++ {
					assert.NotEqual(t, stored[i], sent[i], "a chain does not come back")
				}
				assert.False(t, absent[sent[block]], "%s: an absent hash is asked for twice", at)
				absent[sent[block]] = true
			}
		}
		assert.Len(t, absent, 3*2)
		assert.Len(t, asked, w.len())
		for chain, times := range asked {
			assert.Equal(t, 3, times, chain)
		}
	}
}

func TestWorkloadSizes(t *testing.T) {
	assert.Equal(t, 20, workloadOf(100, 1, 1).len())
	assert.Equal(t, 30, workloadOf(100, 2001, 1).len())
	a, b := workloadOf(64, 1, 1), workloadOf(65, 1, 1)
	assert.False(t, bytes.Contains(b.blob, a.hash(0, 0)), "no workload finds another's hashes")
	for share, want := range map[float64]int{1: 0, 0: 20, 0.9: 2, 0.99: 1, 0.5: 10} {
		w := workloadOf(10, 200, 1)
		w.cut(share, MissFirst)
		misses := 0
		for n := range w.len() {
			if w.want(w.request(n)) == 0 {
				misses++
			}
		}
		assert.Equal(t, want, misses, "%v", share)
	}
}

// Whatever the number of hashes, the requests do not fit a cache of Options.Rotate.
func TestRotation(t *testing.T) {
	o := Options{Rotate: 64 << 20}
	for _, hashes := range []int{1, 20, 64, 512, 8192, 131072, MaxHashes} {
		chains := o.numChains(hashes)
		assert.GreaterOrEqual(t, chains, 20, hashes)
		assert.Greater(t, chains*hashes*hashLen, 64<<20, hashes)
	}
}

// bytesSent returns what the first requests of a workload send, in each form.
func bytesSent(seed uint64) []byte {
	w := workloadOf(30, 600, seed)
	sent := slices.Clone(w.blob)
	w.cut(0.5, MissRandom)
	template, first, stride := wire.MemberTemplate(30)
	members := w.prepared("members", template, first, stride, plainHash)
	for n := range 2 * w.len() {
		r := w.request(n)
		w.put(r)
		sent = append(append(sent, w.chain(r.chain)...), members.put(r, 30)...)
	}
	return sent
}

func TestSeeds(t *testing.T) {
	assert.Equal(t, bytesSent(7), bytesSent(7))
	assert.NotEqual(t, bytesSent(7), bytesSent(8))
	a, b := workloadOf(30, 600, 7), workloadOf(30, 600, 8)
	a.cut(0.5, MissRandom)
	b.cut(0.5, MissRandom)
	assert.NotEqual(t, a.order, b.order)
	assert.NotEqual(t, a.missing, b.missing)
	assert.NotEqual(t, a.hash(0, 0), b.hash(0, 0))
}

// Every form of a request has the absent hash where the chain has it.
func TestPrepared(t *testing.T) {
	const hashes = 30
	w := workloadOf(hashes, 600, 1)
	w.cut(0, MissRandom)
	member, first, stride := wire.MemberTemplate(hashes)
	members := w.prepared("SMISMEMBER", member, first, stride, plainHash)
	assert.Same(t, members, w.prepared("SMISMEMBER", nil, 0, 0, nil), "made once")
	exist, first, stride := wire.ExistsTemplate(hashes)
	exists := w.prepared("EXISTS", exist, first, stride, plainHash)
	keys, asMembers := w.asKeys(), w.asMembers()
	for n := range 2 * w.len() {
		r := w.request(n)
		w.put(r)
		wantMembers, wantExists := fmt.Sprintf("*%d\r\n$10\r\nSMISMEMBER\r\n$6\r\nblocks\r\n", 2+hashes), ""
		for block, hash := range w.strings(r.chain) {
			wantMembers += "$32\r\n" + hash + "\r\n"
			wantExists += "*2\r\n$6\r\nEXISTS\r\n$32\r\n" + hash + "\r\n"
			assert.Equal(t, []byte(hash), asMembers[r.chain][block])
			if block != r.block {
				assert.Equal(t, hash, keys[r.chain][block])
			}
		}
		require.Equal(t, wantMembers, string(members.put(r, hashes)))
		require.Equal(t, wantExists, string(exists.put(r, hashes)))
	}
}

func TestLeadingOnes(t *testing.T) {
	for reply, want := range map[string]int{"": 0, ":1\r\n": 1, ":0\r\n": 0, ":1\r\n:1\r\n:0\r\n:1\r\n:0\r\n": 2, ":1\r\n:1\r\n": 2} {
		got, err := wire.LeadingOnes([]byte(reply))
		require.NoError(t, err)
		assert.Equal(t, want, got, reply)
	}
	for _, reply := range []string{":2\r\n", ":1\r", ":1\r\n:0\r\n-no\r\n"} {
		_, err := wire.LeadingOnes([]byte(reply))
		require.ErrorIs(t, err, measure.ErrAnswer, reply)
	}
}

// Every rival has a usual client, or a reason for having none, and is on one server.
func TestWays(t *testing.T) {
	for _, name := range Rivals() {
		client, why := UsualClient(name)
		assert.NotEqual(t, client == "", why == "", "%s: one of both", name)
	}
	assert.Len(t, usualClients, len(Rivals())-len(preparedOnly))
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

func TestValidate(t *testing.T) {
	require.NoError(t, small().Validate())
	for want, break_ := range map[string]func(*Options){
		"no number of hashes":          func(o *Options) { o.Hashes = nil },
		"0 hashes; 1 to 2000000 fit":   func(o *Options) { o.Hashes = []int{5, 0} },
		"2000001 hashes;":              func(o *Options) { o.Hashes = []int{2_000_001} },
		"[5 6 5]: one of them is":      func(o *Options) { o.Hashes = []int{5, 6, 5} },
		"a hash of 0 tokens;":          func(o *Options) { o.HashTokens = 0 },
		"-1 entries;":                  func(o *Options) { o.Entries = -1 },
		"a rotation of 5000 MiB;":      func(o *Options) { o.Rotate = 5000 << 20 },
		"0 rounds;":                    func(o *Options) { o.Rounds = 0 },
		"0s for each rival;":           func(o *Options) { o.TimePerRival = 0 },
		"a share of 1.5 that hits;":    func(o *Options) { o.HitShare = 1.5 },
		"a miss at \"end\";":           func(o *Options) { o.MissAt = "end" },
		"no rival is called \"rédis\"": func(o *Options) { o.Only = []string{Floor, "rédis"} },
		"ways [fast]; there are":       func(o *Options) { o.Ways = []string{"fast"} },
		"a timeout of 0s;":             func(o *Options) { o.Timeout = 0 },
	} {
		o := small()
		break_(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions, want)
		assert.ErrorContains(t, err, want)
	}
	o := small()
	assert.True(t, o.wants(Python, Usual))
	o.Only, o.Ways = []string{Floor}, []string{Prepared}
	assert.Equal(t, []bool{true, true, false}, []bool{o.wants(Floor, Prepared), o.wants(Hitline, Ways()...), o.wants(Python, Prepared)})
	assert.False(t, o.wants(Hitline, Usual))
}
