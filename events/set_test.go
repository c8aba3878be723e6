package events

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

var gpu = Tier{Medium: "GPU"}

// joined returns hashes of hashLen bytes that begin with 8 bytes of each number.
func joined(hashLen int, numbers ...uint64) netproto.Hashes {
	blob := make([]byte, 0, hashLen*len(numbers))
	for _, n := range numbers {
		blob = binary.BigEndian.AppendUint64(blob, n)
		blob = append(blob, make([]byte, hashLen-8)...)
	}
	return netproto.NewHashes(blob, hashLen)
}

func store(t *testing.T, s *Set, group int, tier Tier, numbers ...uint64) []bool {
	t.Helper()
	held := make([]bool, len(numbers))
	require.NoError(t, s.Store(&Blocks{Group: group, Tier: tier, Hashes: joined(8, numbers...)}, held))
	return held
}

func remove(t *testing.T, s *Set, group int, tier Tier, numbers ...uint64) {
	t.Helper()
	require.NoError(t, s.Remove(&Blocks{Group: group, Tier: tier, Hashes: joined(8, numbers...)}))
}

// contents returns what Each yields, one string a block.
func contents(s *Set) (list []string) {
	for b := range s.Each {
		for _, hash := range b.Hashes.All() {
			list = append(list, fmt.Sprintf("%d %s %d", b.Group, b.Tier.Medium, binary.BigEndian.Uint64(hash)))
		}
	}
	return list
}

func TestSetHolds(t *testing.T) {
	s := NewSet(0)
	require.True(t, s.Stale())
	require.Equal(t, []bool{false, false, true}, store(t, s, 0, gpu, 7, 8, 7))
	require.Equal(t, []bool{false, true}, store(t, s, 0, gpu, 9, 8))
	require.Equal(t, []bool{false}, store(t, s, 1, gpu, 7))
	require.Equal(t, []bool{false}, store(t, s, 0, Tier{Medium: "CPU"}, 7))
	require.Equal(t, 5, s.Len())
	require.Equal(t, []string{"0 GPU 7", "0 GPU 8", "0 GPU 9", "1 GPU 7", "0 CPU 7"}, contents(s))

	hash := joined(8, 7).At(0)
	require.False(t, s.Contains(0, gpu, hash), "it is stale")
	s.SetStale(false)
	require.True(t, s.Contains(0, gpu, hash))
	require.False(t, s.Contains(2, gpu, hash))
	require.False(t, s.Contains(0, Tier{Medium: "GPU", Locality: "LOCAL"}, hash))
	require.False(t, s.Contains(0, gpu, []byte("7")))

	remove(t, s, 0, gpu, 7, 100)
	require.Equal(t, []string{"0 GPU 8", "0 GPU 9", "1 GPU 7", "0 CPU 7"}, contents(s))
	store(t, s, 0, gpu, 7)
	require.Equal(t, []string{"0 GPU 8", "0 GPU 9", "1 GPU 7", "0 CPU 7", "0 GPU 7"}, contents(s))
	s.Clear()
	require.Zero(t, s.Len())
	require.Empty(t, contents(s))
	require.False(t, s.Contains(0, gpu, hash))
}

func TestSetEachStops(t *testing.T) {
	s := NewSet(0)
	store(t, s, 0, gpu, 1)
	store(t, s, 1, gpu, 1)
	n := 0
	for range s.Each {
		n++
		break
	}
	require.Equal(t, 1, n)
}

// A removal that says less than the event that stored removes all that it may mean, and so does
// one that says more.
func TestSetRemovesWhatIsMeant(t *testing.T) {
	local := Tier{Medium: "GPU", Locality: "LOCAL"}
	remote := Tier{Medium: "GPU", Locality: "REMOTE"}
	for _, test := range []struct {
		group int
		tier  Tier
		left  []string
	}{
		{NoGroup, Tier{}, nil},
		{0, Tier{}, []string{"1 GPU 7"}},
		{NoGroup, gpu, []string{"0 CPU 7"}},
		{NoGroup, Tier{Medium: "CPU"}, []string{"-1 GPU 7", "0 GPU 7", "0 GPU 7", "1 GPU 7"}},
		{0, local, []string{"0 CPU 7", "0 GPU 7", "1 GPU 7"}},
		{1, gpu, []string{"0 CPU 7", "0 GPU 7", "0 GPU 7"}},
	} {
		s := NewSet(0)
		store(t, s, NoGroup, gpu, 7)
		store(t, s, 0, local, 7)
		store(t, s, 0, remote, 7)
		store(t, s, 1, gpu, 7)
		store(t, s, 0, Tier{Medium: "CPU"}, 7)
		remove(t, s, test.group, test.tier, 7)
		left := contents(s)
		slices.Sort(left)
		require.Equal(t, test.left, left, "%+v", test)
	}
}

func TestSetBounds(t *testing.T) {
	s := NewSet(3)
	held := make([]bool, 5)
	err := s.Store(&Blocks{Tier: gpu, Hashes: joined(8, 1, 2, 2, 3, 4)}, held)
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, 3, s.Len())
	require.Equal(t, []bool{true}, store(t, s, 0, gpu, 3), "what is held needs no space")
	remove(t, s, 0, gpu, 1)
	store(t, s, 0, gpu, 4)

	err = s.Store(&Blocks{Tier: gpu, Hashes: joined(32, 1)}, held)
	require.ErrorIs(t, err, ErrHashLen)
	s.Clear()
	require.NoError(t, s.Store(&Blocks{Tier: gpu, Hashes: joined(32, 1)}, held))

	s = NewSet(0)
	require.ErrorIs(t, s.Store(&Blocks{Group: maxGroup + 1, Hashes: joined(8, 1)}, held), ErrPlaces)
	require.ErrorIs(t, s.Store(&Blocks{Group: -2, Hashes: joined(8, 1)}, held), ErrPlaces)
	for i := range maxTiers {
		store(t, s, 0, Tier{Medium: fmt.Sprint(i)}, 1)
	}
	require.ErrorIs(t, s.Store(&Blocks{Tier: gpu, Hashes: joined(8, 1)}, held), ErrPlaces)
	for i := range maxPlaces - maxTiers {
		store(t, s, i+1, Tier{Medium: "0"}, 1)
	}
	require.ErrorIs(t, s.Store(&Blocks{Group: maxGroup, Tier: Tier{Medium: "0"}, Hashes: joined(8, 1)}, held), ErrPlaces)
	require.Equal(t, maxPlaces, s.Len())
	remove(t, s, NoGroup, Tier{}, 1)
	require.Zero(t, s.Len())
}

// tableModel is a slow blockTable.
type tableModel struct {
	order []string
}

func (m *tableModel) key(hash []byte, at placeID) string { return fmt.Sprint(at, " ", string(hash)) }

func (m *tableModel) insert(hash []byte, at placeID) (held bool) {
	key := m.key(hash, at)
	if slices.Contains(m.order, key) {
		return true
	}
	m.order = append(m.order, key)
	return false
}

func (m *tableModel) remove(hash []byte, at placeID) bool {
	i := slices.Index(m.order, m.key(hash, at))
	if i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
	return i >= 0
}

// TestBlockTable compares with a slow model, also where all sums are equal, and where they are
// near the end of the slots.
func TestBlockTable(t *testing.T) {
	for name, degenerate := range map[string]func(word []byte){
		"random sums":  nil,
		"equal sums":   func(b []byte) { copy(b[4:], "same") },
		"sums at end":  func(b []byte) { copy(b[4:], "\xff\xff\xff\xff") },
		"sums of four": func(b []byte) { b[4], b[5], b[6], b[7] = 0, 0, 0, b[7]&0xC0 },
	} {
		for _, hashLen := range []int{8, 32} {
			if degenerate != nil && hashLen != 8 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, hashLen), func(t *testing.T) {
				testBlockTable(t, hashLen, degenerate)
			})
		}
	}
}

func testBlockTable(t *testing.T, hashLen int, degenerate func([]byte)) {
	random := rand.New(rand.NewPCG(3, 4))
	var table blockTable
	table.init(hashLen)
	if degenerate != nil {
		table.secret = [2]uint64{} // then the sum is the upper half of the hash as a word
	}
	var model tableModel
	numKeys := 60
	for step := range 20_000 {
		if step%4000 == 3999 {
			numKeys = numKeys * 2 // up to 960
		}
		hash := make([]byte, hashLen)
		binary.LittleEndian.PutUint32(hash, uint32(random.IntN(numKeys)))
		if degenerate != nil {
			hash[7] = hash[0]
			degenerate(hash)
		}
		at := placeID(random.IntN(2))
		switch random.IntN(9) {
		case 0, 1, 2, 3, 4:
			held, ok := table.insert(hash, at, table.sum(hash, at), 1<<20)
			require.True(t, ok)
			require.Equal(t, model.insert(hash, at), held)
		case 5, 6, 7:
			require.Equal(t, model.remove(hash, at), table.remove(hash, at, table.sum(hash, at)))
		default:
			require.Equal(t, slices.Contains(model.order, model.key(hash, at)), table.contains(hash, at))
		}
		require.Equal(t, len(model.order), table.live)
		if step%100 == 0 {
			var order []string
			for r, at := range table.places {
				if at != removedPlace {
					order = append(order, model.key(table.hash(r), at))
				}
			}
			require.Equal(t, model.order, order)
		}
	}
	require.Greater(t, len(table.slots), minSlots)
}

// memory returns the bytes of the table's arrays.
func (t *blockTable) memory() int { return cap(t.hashes) + 2*cap(t.places) + 8*cap(t.slots) }

// TestSetMemory checks the promise of 32 bytes a block at all sizes, growing and with evictions.
func TestSetMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var table blockTable
	table.init(8)
	var hashes [][]byte
	worst := 0.0
	for n := 1; n <= 1_000_000; n++ {
		hash := binary.BigEndian.AppendUint64(nil, random.Uint64())
		hashes = append(hashes, hash)
		table.insert(hash, 0, table.sum(hash, 0), 1<<20)
		if n > 1000 {
			worst = max(worst, float64(table.memory())/float64(n))
		}
	}
	t.Logf("growing: at most %.1f bytes a block, %.1f at a million", worst, float64(table.memory())/1e6)
	require.Less(t, worst, 32.0)
	for i := range 2_000_000 {
		i %= len(hashes)
		require.True(t, table.remove(hashes[i], 0, table.sum(hashes[i], 0)))
		hash := binary.BigEndian.AppendUint64(nil, random.Uint64())
		hashes[i] = hash
		table.insert(hash, 0, table.sum(hash, 0), 1<<20)
		worst = max(worst, float64(table.memory())/1e6)
	}
	t.Logf("with evictions: %.1f bytes a block", float64(table.memory())/1e6)
	require.Less(t, worst, 32.0)
	for _, hash := range hashes {
		require.True(t, table.contains(hash, 0))
	}
	require.False(t, bytes.Equal(hashes[0], hashes[1]))
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1 << 16, 1 << 20} {
		random := rand.New(rand.NewPCG(5, 6))
		blob := make([]byte, 0, 2*n*8)
		for range 2 * n {
			blob = binary.BigEndian.AppendUint64(blob, random.Uint64())
		}
		all := netproto.NewHashes(blob, 8)
		b.Run(fmt.Sprintf("op=evict+store/len=%d", n), func(b *testing.B) {
			s := NewSet(0)
			held := make([]bool, 2*n)
			_ = s.Store(&Blocks{Tier: gpu, Hashes: netproto.NewHashes(blob[:n*8], 8)}, held)
			i := 0
			for b.Loop() {
				_ = s.Remove(&Blocks{Tier: gpu, Hashes: netproto.NewHashes(all.At(i), 8)})
				_ = s.Store(&Blocks{Tier: gpu, Hashes: netproto.NewHashes(all.At((i+n)%(2*n)), 8)}, held)
				if i++; i == 2*n {
					i = 0
				}
			}
		})
	}
}
