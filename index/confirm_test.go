package index

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfirm(t *testing.T) {
	const n = 6
	keys, other := chain(1, n, 32), chain(2, n, 32)
	whole := func(t *testing.T, x *Index) { storeAt(t, x, 0, 0, nil, keys) }
	sure := func(t *testing.T, x *Index) {
		storeAt(t, x, 0, 0, nil, keys)
		x.Confirm(0, nil, keys, 32)
	}
	linkCases{
		"confirmed": {sure, "0! 1<0! 2<1! 3<2! 4<3! 5<4!"},
		"confirmed from the middle": {func(t *testing.T, x *Index) {
			whole(t, x)
			x.Confirm(2, cut(keys, 1, 2), cut(keys, 2, 4), 32)
		}, "0 1<0 2<1! 3<2! 4<3 5<4"},
		"confirmed where nothing is said": {func(t *testing.T, x *Index) {
			store(t, x, keys, 32)
			x.Confirm(0, nil, keys, 32)
		}, "- - - - - -"},
		"confirmed where the key in front is not said": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 3, nil, cut(keys, 3, n))
			x.Confirm(3, cut(keys, 2, 3), cut(keys, 3, n), 32)
		}, ". . . 3<? 4<3! 5<4!"},
		"confirmed from a key that is not there": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 3, cut(keys, 2, 3), cut(keys, 3, n))
			x.Confirm(0, nil, keys, 32)
		}, ". . . 3<2 4<3 5<4"},
		"confirmed under another number": {func(t *testing.T, x *Index) {
			whole(t, x)
			x.Confirm(1, cut(other, 0, 1), keys, 32)
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"confirmed at number 0 what is said of number 3": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 3, cut(keys, 2, 3), cut(keys, 3, n))
			x.Confirm(0, nil, cut(keys, 3, n), 32)
		}, ". . . 3<2 4<3 5<4"},
		"confirmed behind another key": {func(t *testing.T, x *Index) {
			whole(t, x)
			x.Confirm(2, cut(keys, 0, 1), cut(keys, 2, 4), 32)
		}, "0 1<0 2<1 3<2! 4<3 5<4"},
		"confirmed behind another key, by its hash": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 3, cut(keys, 2, 3), cut(keys, 3, n))
			x.Confirm(3, cut(keys, 0, 1), cut(keys, 3, n), 32)
		}, ". . . 3<2 4<3! 5<4!"},
		"confirmed without the key in front": {func(t *testing.T, x *Index) {
			whole(t, x)
			x.Confirm(2, nil, cut(keys, 2, n), 32)
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"what is sure stays": {func(t *testing.T, x *Index) {
			sure(t, x)
			storeAt(t, x, 0, 7, cut(other, 0, 1), cut(keys, 3, 4))
			storeAt(t, x, 0, 0, nil, cut(keys, 2, 3))
			storeAt(t, x, 0, 1, cut(other, 0, 1), cut(keys, 1, 2))
		}, "0! 1<0! 2<1! 3<2! 4<3! 5<4!"},
		"what is sure stays behind one that is not": {func(t *testing.T, x *Index) {
			whole(t, x)
			x.Confirm(3, cut(keys, 2, 3), cut(keys, 3, n), 32)
			storeAt(t, x, 0, 9, nil, cut(keys, 2, 3))
		}, "0 1<0 9<? 3<2! 4<3! 5<4!"},
	}.run(t, keys)
}

// confirm tells whether all keys were there.
func confirm(x *Index, number uint32, before, keys []byte, hashLen int) bool {
	all, _ := x.Confirm(number, before, keys, hashLen)
	return all
}

// TestConfirmEnds confirms nothing behind a key that is not there.
func TestConfirmEnds(t *testing.T) {
	const n = 300
	for _, gone := range []int{0, 1, 63, 64, 65, 200, n - 1} {
		x, keys := mustNew(t, onePlace(0)), chain(1, n, 32)
		storeAt(t, x, 0, 0, nil, keys)
		evict(t, x, 0, cut(keys, gone, gone+1), 32)
		require.False(t, confirm(x, 0, nil, keys, 32))
		require.Equal(t, gone, strings.Count(linksOf(x, keys), "!"))
		require.True(t, confirm(x, 0, nil, cut(keys, 0, gone), 32))
	}
	x, keys := mustNew(t, onePlace(0)), chain(1, n, 32)
	store(t, x, keys, 32)
	require.True(t, confirm(x, 0, nil, keys, 32), "all are there, if not known as a chain")
	require.False(t, confirm(x, 0, nil, keys, 0))
	require.False(t, confirm(x, 0, nil, keys, maxHashLen+1))
}
