package tokens

import (
	"bufio"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type lru struct {
	capacity int
	of       map[uint64]*list.Element
	order    *list.List
}

func newLRU(n int) *lru { return &lru{n, map[uint64]*list.Element{}, list.New()} }
func (l *lru) has(id uint64) bool {
	_, ok := l.of[id]
	return ok
}
func (l *lru) touch(ids []uint64) {
	for i := len(ids) - 1; i >= 0; i-- {
		if e := l.of[ids[i]]; e != nil {
			l.order.MoveToFront(e)
		} else {
			l.of[ids[i]] = l.order.PushFront(ids[i])
		}
	}
	for l.capacity > 0 && l.order.Len() > l.capacity {
		e := l.order.Back()
		delete(l.of, e.Value.(uint64))
		l.order.Remove(e)
	}
}

func loadTrace(t testing.TB, split int) (requests [][]uint64) {
	f, err := os.Open("/work/shared/traces/conversation_trace.jsonl")
	require.NoError(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var r struct {
			HashIDs []uint64 `json:"hash_ids"`
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &r))
		var ids []uint64
		for _, id := range r.HashIDs {
			for k := range split {
				ids = append(ids, id*uint64(split)+uint64(k))
			}
		}
		requests = append(requests, ids)
	}
	return requests
}

func hashesOf(ids []uint64) []byte {
	b := make([]byte, 0, 32*len(ids))
	for _, id := range ids {
		var h [32]byte
		binary.BigEndian.PutUint64(h[:], id*0xD1342543DE82EF95+1)
		binary.BigEndian.PutUint64(h[8:], id*0xA0761D6478BD642F+7)
		binary.BigEndian.PutUint64(h[24:], id*0xE7037ED1A0B428DB+9)
		b = append(b, h[:]...)
	}
	return b
}

func TestTrace(t *testing.T) {
	for _, split := range []int{1, 8} {
		requests := loadTrace(t, split)
		for _, capacity := range []int{1000, 10000, 30000, 100000} {
			for _, mem := range []int{64 << 20, 16 << 20, 4 << 20, 1 << 20} {
				pool := newLRU(capacity * split)
				hb := int64(512 / split)
				a := newAccount(Pool{HashBlock: hb, SchedulerBlock: hb, Keys: func(int64) int64 { return 0 }, Reachable: func(p Prompt, blocks int) int64 {
					return min(int64(blocks)*hb, p.NumTokens-p.NumTokens%hb)
				}}, mem, 1, func(int) bool { return true })
				rec := &Recorder{accounts: &Accounts{}}
				asker := "a"
				asked := map[uint64]bool{}
				var want Counts
				now := int64(1)
				for _, ids := range requests {
					now += int64(time.Second)
					hit := 0
					for hit < len(ids) && pool.has(ids[hit]) {
						hit++
					}
					known := hit
					for i := range ids {
						if asked[ids[i]] {
							known = max(known, i+1)
						}
						asked[ids[i]] = true
					}
					want[InPool] += int64(hit)
					want[Evicted] += int64(known - hit)
					want[New] += int64(len(ids) - known)
					r := rec.Begin(a, asker, Prompt{NumTokens: int64(len(ids)) * hb, NumHashes: len(ids)})
					r.AddHashes(hashesOf(ids), 32)
					r.Answered, r.Hit, r.Found, r.Whole = true, int64(hit)*hb, hit, hit
					rec.Record(r, now)
					rec.drain(nil)
					pool.touch(ids)
				}
				for _, c := range []int{1000, 10000, 30000, 100000, 1000000} {
					fmt.Printf(" %d:%.2f", c, 100*a.curve.hitShare(float64(c*split)))
				}
				fmt.Println(" exact 4.45 21.16 32.57 36.37 36.64; sampled/asked", a.curve.sampled/a.curve.asked)
				n, share := a.table.count(), float64(a.table.threshold)/(1<<64)
				a.close()
				total := float64(want.Total())
				var lost int64
				for p := Emptied; p <= Unsaved; p++ {
					lost += a.counts[p] / hb
				}
				fmt.Printf("split %d C %6d mem %2d MiB: share %.3f n %d pool %d/%d lost %d/%d (%.2f) new %d/%d (%.2f) %v remembers %v\n", split, capacity, mem>>20, share, n,
					a.counts[InPool]/hb, want[InPool], lost, want[Evicted], 100*float64(lost-want[Evicted])/total, a.counts[New]/hb, want[New], 100*float64(a.counts[New]/hb-want[New])/total, a.counts, time.Duration(a.recall.remembers()))
			}
		}
	}
}
