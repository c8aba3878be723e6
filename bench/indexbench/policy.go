package indexbench

import (
	"container/heap"
	"container/list"
	"slices"
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
	use := func(nodes []uint32) {
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
	for _, nodes := range requests {
		n := leadingIn(nodes, func(n uint32) bool { return held[n] != nil })
		hits += int64(n)
		use(nodes[:n])
		use(nodes)
	}
	return hits
}

// never is the time of a use that does not come.
const never = int(^uint(0) >> 1)

// beladyHits replays requests to whoever knows the future.
func beladyHits(requests [][]uint32, capacity int) (hits int64) {
	again := nextUses(requests)
	held := map[uint32]int{} // when it is used next
	var farthest useHeap     // of held; stale items are passed over
	at := 0
	for _, nodes := range requests {
		hits += int64(leadingIn(nodes, func(n uint32) bool { _, ok := held[n]; return ok }))
		for _, n := range nodes {
			delete(held, n)
			if when := again[at]; when != never {
				held[n] = when
				heap.Push(&farthest, use{when, n})
			}
			at++
		}
		for len(held) > capacity {
			if u := heap.Pop(&farthest).(use); held[u.node] == u.when {
				delete(held, u.node)
			}
		}
	}
	return hits
}

// nextUses gives for each use, in the order of the requests, when the same node is
// used next.
func nextUses(requests [][]uint32) []int {
	uses := slices.Concat(requests...)
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

// use is a node and when it is used; useHeap has the last use on top.
type use struct {
	when int
	node uint32
}

type useHeap []use

func (h useHeap) Len() int           { return len(h) }
func (h useHeap) Less(i, j int) bool { return h[i].when > h[j].when }
func (h useHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *useHeap) Push(u any)        { *h = append(*h, u.(use)) }
func (h *useHeap) Pop() any {
	last := len(*h) - 1
	u := (*h)[last]
	*h = (*h)[:last]
	return u
}
