package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
)

// sample is some of the keys of a store that have the shape of a block's.
type sample struct {
	keys     []blockKey
	complete bool // there are no others
}

// blockKey is a key, or the name of a set, taken apart.
type blockKey struct {
	name  string // [cache_prefix@]model
	rank  coordinator.Rank
	group int
	hash  string // "" for a set
}

// keyShape is the reference's key; see coordinator.AppendKey.
var keyShape = regexp.MustCompile(`(?s)^(.*)@tp_rank:(\d+)@pcp(\d+)@dcp(\d+)@pp_rank:(\d+)@group:(\d+)(?:@([0-9a-f]+))?$`)

func parseKey(key string) (k blockKey, ok bool) {
	m := keyShape.FindStringSubmatch(key)
	if m == nil {
		return k, false
	}
	var n [5]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[2+i]) // digits
	}
	return blockKey{name: m[1], rank: coordinator.Rank{TP: n[0], PCP: n[1], DCP: n[2], PP: n[3]}, group: n[4], hash: m[7]}, true
}

// What a node is asked for at most, and in how large portions.
const sampleScans, sampleCount, sampleEnough = 20, 1000, 2000

// sampleKeys looks at some keys of a Redis.
func sampleKeys(ctx context.Context, cfg *config.Redis) (sample, error) {
	s := sample{complete: true}
	var mu sync.Mutex
	scan := func(ctx context.Context, node *goredis.Client) error {
		var cursor uint64
		taken := 0
		for range sampleScans {
			keys, next, err := node.Scan(ctx, cursor, "*@tp_rank:*@group:*", sampleCount).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			for _, key := range keys {
				if k, ok := parseKey(key); ok {
					s.keys = append(s.keys, k)
					taken++
				}
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
			if taken >= sampleEnough {
				break
			}
		}
		mu.Lock()
		s.complete = false
		mu.Unlock()
		return nil
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return s, errors.New("the URL cannot be read")
	}
	u.Scheme = strings.Replace(u.Scheme, "valkey", "redis", 1)
	base := strings.TrimSuffix(u.Scheme, "-cluster")
	if base == "rediss" {
		return s, errors.New("doctor samples keys without TLS only")
	}
	if cfg.InCluster() {
		u.Scheme = base
		options, err := goredis.ParseClusterURL(u.String())
		if err != nil {
			return s, err
		}
		options.Protocol, options.ContextTimeoutEnabled, options.DisableIdentity = 2, true, true
		client := goredis.NewClusterClient(options)
		defer client.Close()
		return s, client.ForEachMaster(ctx, scan)
	}
	options, err := goredis.ParseURL(u.String())
	if err != nil {
		return s, err
	}
	options.Protocol, options.ContextTimeoutEnabled, options.DisableIdentity = 2, true, true
	client := goredis.NewClient(options)
	defer client.Close()
	return s, scan(ctx, client)
}

// withoutPassword returns text without the password of a URL.
func withoutPassword(text, address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		if password, _ := u.User.Password(); password != "" {
			return strings.ReplaceAll(text, password, "***")
		}
	}
	return text
}

// compare says how the keys found differ from those of the configured pool.
func (d *diagnosis) compare(s sample, cfg *config.Config, rules *coordinator.Coordinator) {
	d.Sampled = len(s.keys)
	if len(s.keys) == 0 {
		if s.complete {
			d.note("no key in the store has the shape of a block's: nothing is stored yet, or it is in another database")
		} else {
			d.note("none of the keys looked at has the shape of a block's")
		}
		return
	}
	want := rules.KeyPrefix(0, coordinator.Rank{})
	want = want[:strings.LastIndex(want, "@tp_rank:")]
	names := map[string]int{}
	var ours []blockKey
	for _, k := range s.keys {
		names[k.name]++
		if k.name == want {
			ours = append(ours, k)
		}
	}
	if len(ours) == 0 {
		d.compareNames(names, want)
		return
	}
	if len(names) > 1 {
		d.note("%d other %s in this store", len(names)-1, plural(len(names)-1, "pool"))
	}
	d.comparePlaces(ours, s.complete, rules)
	d.compareHashes(ours, cfg)
}

// compareNames says which part of the name of other pools differs from want.
func (d *diagnosis) compareNames(names map[string]int, want string) {
	most := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] > names[most] {
			most = name
		}
	}
	prefix, model := splitName(most)
	wantPrefix, wantModel := splitName(want)
	if model != wantModel {
		d.problem("the store's keys are of the model %q, and the pool's would be of %q: set pool.model_name to what the engine has", model, wantModel)
	}
	if prefix != wantPrefix {
		d.problem("the store's keys have the cache prefix %q, and the pool's would have %q: set pool.cache_prefix to what the engine has", prefix, wantPrefix)
	}
}

// splitName takes apart cache_prefix@model.
func splitName(name string) (prefix, model string) {
	at := strings.LastIndexByte(name, '@')
	return name[:max(0, at)], name[at+1:]
}

// comparePlaces compares the groups and ranks that hold blocks with those that must.
func (d *diagnosis) comparePlaces(keys []blockKey, complete bool, rules *coordinator.Coordinator) {
	type place struct {
		group int
		rank  coordinator.Rank
	}
	pool := rules.Pool()
	held := map[place]bool{}
	groups, foreign := map[int]bool{}, map[int]bool{}
	for _, k := range keys {
		held[place{k.group, k.rank}] = true
		groups[k.group] = true
		foreign[k.group] = k.group >= rules.NumGroups()
	}
	for _, g := range slices.Sorted(maps.Keys(foreign)) {
		if foreign[g] {
			d.problem("blocks are stored for group %d, and pool.groups has %d: describe all groups of the engine there", g, rules.NumGroups())
			break
		}
	}
	for g := range rules.NumGroups() {
		if !groups[g] {
			if complete {
				d.problem("no block is stored for group %d of pool.groups: has the engine as many groups?", g)
			}
			continue
		}
		ranks := rules.Ranks(g)
		missing := slices.IndexFunc(ranks, func(r coordinator.Rank) bool { return !held[place{g, r}] })
		if complete && missing >= 0 {
			d.problem("group %d has no block on %s, which lookups need there: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's", g, rankText(ranks[missing]))
		}
		for _, k := range keys {
			if k.group == g && (k.rank.TP >= pool.TPSize || k.rank.PP >= pool.PPSize || k.rank.PCP >= pool.PCPSize || k.rank.DCP >= pool.DCPSize) {
				d.problem("group %d has blocks on %s, of which the pool knows nothing: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's", g, rankText(k.rank))
				break
			}
		}
	}
}

func rankText(r coordinator.Rank) string {
	return fmt.Sprintf("tp_rank %d, pp_rank %d, pcp %d, dcp %d", r.TP, r.PP, r.PCP, r.DCP)
}

// compareHashes compares the layout, and the lengths of the hashes.
func (d *diagnosis) compareHashes(keys []blockKey, cfg *config.Config) {
	lengths := map[int]bool{}
	sets := 0
	for _, k := range keys {
		if k.hash == "" {
			sets++
		} else {
			lengths[len(k.hash)] = true
		}
	}
	layout := cfg.Backend.Redis.Layout
	if sets > 0 && layout == "keys" {
		d.problem("blocks are stored in sets: set backend.redis.layout to set, or reset the pool")
	}
	if sets < len(keys) && layout == "set" {
		d.problem("blocks are stored as keys of their own: set backend.redis.layout to keys, or reset the pool")
	}
	all := slices.Sorted(maps.Keys(lengths))
	if len(all) > 1 {
		d.problem("the hashes in the keys have %v hexadecimal digits: engines with different hash functions share this pool, give each a pool.cache_prefix", all)
	} else if len(all) == 1 {
		d.note("the hashes in the keys have %d hexadecimal digits, %d bytes; a lookup's must have as many", all[0], all[0]/2)
	}
}
