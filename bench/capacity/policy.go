package capacity

import (
	"container/heap"
	"container/list"
	"math"
	"slices"
	"sort"
)

// leadingIn counts the nodes before the first that is not held.
func leadingIn(nodes []uint32, held func(uint32) bool) int {
	if i := slices.IndexFunc(nodes, func(n uint32) bool { return !held(n) }); i >= 0 {
		return i
	}
	return len(nodes)
}

// lruHits replays requests to an exact LRU of nodes.
func lruHits(requests [][]uint32, capacity int, tailFirst bool) (hits int64) {
	order := list.New() // the most recently used in front
	held := map[uint32]*list.Element{}
	for _, nodes := range requests {
		hits += int64(leadingIn(nodes, func(n uint32) bool { return held[n] != nil }))
		for i := range nodes {
			if tailFirst {
				i = len(nodes) - 1 - i
			}
			if at, ok := held[nodes[i]]; ok {
				order.MoveToFront(at)
				continue
			}
			if len(held) == capacity {
				delete(held, order.Remove(order.Back()).(uint32))
			}
			held[nodes[i]] = order.PushFront(nodes[i])
		}
	}
	return hits
}

// never is the time of a use that does not come.
const never = math.MaxInt

// beladyHits replays requests to a policy that knows the future. The time of a use is its
// place among the uses of all requests.
func beladyHits(requests [][]uint32, capacity int) (hits int64) {
	uses := slices.Concat(requests...)
	again := nextUses(uses)
	held := map[uint32]int{} // when it is used next
	var next times           // of held; some are over
	at := 0
	for _, nodes := range requests {
		hits += int64(leadingIn(nodes, func(n uint32) bool { _, ok := held[n]; return ok }))
		for _, n := range nodes {
			delete(held, n)
			if when := again[at]; when != never {
				held[n] = when
				heap.Push(&next, when)
			}
			at++
		}
		for len(held) > capacity {
			if when := heap.Pop(&next).(int); held[uses[when]] == when {
				delete(held, uses[when])
			}
		}
	}
	return hits
}

// nextUses returns for each use when the same node is used next.
func nextUses(uses []uint32) []int {
	again := make([]int, len(uses))
	next := map[uint32]int{}
	for i, n := range slices.Backward(uses) {
		again[i] = never
		if when, ok := next[n]; ok {
			again[i] = when
		}
		next[n] = i
	}
	return again
}

// times is a heap with the last one on top.
type times struct{ sort.IntSlice }

func (t times) Less(i, j int) bool { return t.IntSlice[i] > t.IntSlice[j] }
func (t *times) Push(when any)     { t.IntSlice = append(t.IntSlice, when.(int)) }
func (t *times) Pop() any {
	last := len(t.IntSlice) - 1
	when := t.IntSlice[last]
	t.IntSlice = t.IntSlice[:last]
	return when
}
