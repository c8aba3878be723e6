package hicache

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// Bounds of a layout. A page of SGLang 0.5.23 has at most some twenty objects.
const (
	maxSuffixes = 64
	maxAffixes  = 512 // bytes of a key besides its hash
	maxKeys     = 4096
)

// layout is how an engine makes the keys of its store. It does not change.
type layout struct {
	prefix   string   // with its "_"
	suffixes []string // of the objects of a page, those of allPages objects first
	allPages int
	trailing []trailingPool
}

// trailingPool is a pool of which a hit needs the last pages alone.
type trailingPool struct {
	first, end int // of its suffixes
	pages      int
}

// parseLayout reads what an engine tells. Its errors say why the store cannot be asked.
func parseLayout(reply []byte, pageSize int) (*layout, error) {
	var r struct {
		Enabled  bool   `json:"enabled"`
		Reason   string `json:"reason"`
		Backend  string `json:"backend"`
		PageSize int    `json:"page_size"`
		Layout   struct {
			Pools  []poolReply `json:"pools"`
			Prefix *string     `json:"key_prefix"`
		} `json:"hicache_object_layout"`
	}
	if err := json.Unmarshal(reply, &r); err != nil {
		return nil, withClass(errSilent, "the engine's layout is no JSON of the known form")
	}
	switch {
	case !r.Enabled:
		return nil, withClass(errDisabled, "the engine tells no layout: %.200q", r.Reason)
	case r.Backend != "mooncake":
		return nil, fmt.Errorf("the engine's store is %.40q, not mooncake", r.Backend)
	case r.PageSize != pageSize:
		return nil, fmt.Errorf("the engine's page_size is %d, and the model's block_size %d", r.PageSize, pageSize)
	}
	l := &layout{}
	if r.Layout.Prefix != nil {
		l.prefix = *r.Layout.Prefix + "_"
	}
	if err := l.addPools(r.Layout.Pools); err != nil {
		return nil, err
	}
	return l, nil
}

// poolReply is a pool as an engine tells it.
type poolReply struct {
	Suffixes      []string `json:"suffixes"`
	HitPolicy     string   `json:"hit_policy"`
	TrailingPages int      `json:"trailing_pages"`
}

func (l *layout) addPools(pools []poolReply) error {
	for _, p := range pools {
		if len(p.Suffixes) == 0 { // what is not asked for would count as there
			return errors.New("the engine's layout has a pool without objects")
		}
		if p.HitPolicy == "all_pages" {
			l.suffixes = append(l.suffixes, p.Suffixes...)
		}
	}
	l.allPages = len(l.suffixes)
	for _, p := range pools {
		switch {
		case p.HitPolicy == "all_pages":
		case p.HitPolicy != "trailing_pages":
			return fmt.Errorf("the engine's layout has the policy %.40q, which is not known", p.HitPolicy)
		case p.TrailingPages < 1:
			return fmt.Errorf("the engine's layout has %d trailing_pages", p.TrailingPages)
		default:
			first := len(l.suffixes)
			l.suffixes = append(l.suffixes, p.Suffixes...)
			l.trailing = append(l.trailing, trailingPool{first, len(l.suffixes), p.TrailingPages})
		}
	}
	if n := len(l.suffixes); n == 0 || n > maxSuffixes {
		return fmt.Errorf("the engine's layout has %d objects a page, want 1 to %d", n, maxSuffixes)
	}
	for _, suffix := range l.suffixes {
		if n := len(l.prefix) + len(suffix); n > maxAffixes {
			return fmt.Errorf("the engine's keys have %d bytes beside the hash, at most %d are possible", n, maxAffixes)
		}
	}
	return nil
}

// pageKeys are the keys of consecutive pages.
type pageKeys struct {
	backend.KeyList
	layout *layout
}

// End implements backend.Keys: behind a page that lacks an object of all pages nothing matters.
func (k pageKeys) End(i int) int {
	perPage := len(k.layout.suffixes)
	if i%perPage >= k.layout.allPages {
		return k.Len()
	}
	return i/perPage*perPage + perPage
}

// keys returns the keys of the pages [from, to).
func (l *layout) keys(hashes coordinator.Hashes, from, to int) pageKeys {
	list, text := make(backend.KeyList, 0, (to-from)*len(l.suffixes)), []byte(l.prefix)
	for page := from; page < to; page++ {
		text = hex.AppendEncode(text[:len(l.prefix)], hashes.At(page))
		hash := len(text)
		for _, suffix := range l.suffixes {
			text = append(text[:hash], suffix...)
			list = append(list, string(text))
		}
	}
	return pageKeys{list, l}
}

// probe returns how many of the first pages the store can load.
func (l *layout) peek(ctx context.Context, store Store, hashes coordinator.Hashes, pages int) (int, error) {
	found := hit{layout: l, runs: make([]int, len(l.trailing))}
	for from := 0; from < pages; {
		to := min(pages, from+maxKeys/len(l.suffixes))
		keys := l.keys(hashes, from, to)
		answers, err := store.Exists(ctx, keys, true)
		if err != nil {
			return 0, err
		}
		answers = append(answers, make([]int, max(0, keys.Len()-len(answers)))...) // of keys that no longer matter
		for ; from < to; from++ {
			if !found.add(answers[:len(l.suffixes)]) {
				return found.end, nil
			}
			answers = answers[len(l.suffixes):]
		}
	}
	return found.end, nil
}

// hit is what is known of a prompt's first pages.
type hit struct {
	layout     *layout
	pages, end int   // how many are known, and how many of them the store can load
	runs       []int // of each trailing pool: how many of the last known pages it has without a gap
}

// add adds the answers about the next page. It returns false if no later page can be loaded.
func (h *hit) add(answers []int) bool {
	has := func(first, end int) bool {
		return !slices.ContainsFunc(answers[first:end], func(answer int) bool { return answer != 1 })
	}
	if !has(0, h.layout.allPages) {
		return false
	}
	h.pages++
	ends := true
	for i, p := range h.layout.trailing {
		if h.runs[i]++; !has(p.first, p.end) {
			h.runs[i] = 0
		}
		ends = ends && h.runs[i] >= min(p.pages, h.pages)
	}
	if ends {
		h.end = h.pages
	}
	return true
}
