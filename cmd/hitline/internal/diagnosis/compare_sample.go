package diagnosis

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// compareSample compares the keys of a sample with those of the pool. It adds one problem
// for each mistake in the configuration, however many keys show it.
func (c *comparer) compareSample(s keySample, f *Findings) {
	if len(s.keys) == 0 {
		if s.complete {
			f.addNote("no key in the store looks like a block's: nothing is stored yet, or it is elsewhere, in another database or tenant")
		} else {
			f.addNote("none of the sampled keys looks like a block's")
		}
		return
	}
	numKeys := map[string]int{} // by pool
	for _, k := range s.keys {
		numKeys[k.pool]++
	}
	own := s.ofPool(poolName(c.rules))
	if c.hasOtherLayout(own) || c.hasOtherLayout(s) {
		f.addProblem("the store's keys are of another engine than lookups ask for: set pool.layout to %s for LMDeploy's, and leave it out for vLLM's", coordinator.LayoutLMDeploy)
		return
	}
	if len(own.keys) == 0 {
		c.compareNames(numKeys, f)
		return
	}
	if others := len(numKeys) - 1; others > 0 {
		f.addNote("%d other %s in this store", others, plural(others, "pool"))
	}
	compareHashLengths(own, f)
}

// hasOtherLayout reports whether s has keys, and none of the layout of the pool.
func (c *comparer) hasOtherLayout(s keySample) bool {
	return len(s.keys) > 0 && !slices.ContainsFunc(s.keys, func(k blockKey) bool { return k.layout == c.pool.Layout })
}

// compareNames compares the name of the pool with the name that most keys have. numKeys
// has the number of keys of each pool.
func (c *comparer) compareNames(numKeys map[string]int, f *Findings) {
	frequent := ""
	for _, name := range slices.Sorted(maps.Keys(numKeys)) {
		if numKeys[name] > numKeys[frequent] {
			frequent = name
		}
	}
	prefix, model, namespace := splitName(frequent)
	wantPrefix, wantModel, wantNamespace := splitName(poolName(c.rules))
	switch {
	case prefix == wantPrefix && model == wantModel && namespace != wantNamespace:
		f.addProblem("the store's keys have the store namespace %q, and lookups ask for %q: compare pool.store_tp_size, enable_store_tp_lcm, prefill_tp_sizes, kv_cache_layout, tp_size and pp_size with the engine's", namespace, wantNamespace)
	case prefix == wantPrefix:
		f.addProblem("the store's blocks are of the model %q, and lookups ask for %q: set pool.model_name to the engine's, unless it has stored nothing yet", model, wantModel)
	case model == wantModel:
		f.addProblem("the store's blocks have the cache prefix %q, and lookups ask for %q: set pool.cache_prefix to the engine's, unless it has stored nothing yet", prefix, wantPrefix)
	default:
		f.addProblem("the store's blocks have the cache prefix %q and the model %q, and lookups ask for %q and %q: set pool.cache_prefix and pool.model_name to the engine's, unless it has stored nothing yet",
			prefix, model, wantPrefix, wantModel)
	}
}

// compareStoreKeys compares a sample of the store's keys. It returns how many it has seen, and
// those of the pool, nil if it could not look at them: then a reply that is none of the port
// that lists keys is a problem, and any other failure an error.
func (c *comparer) compareStoreKeys(ctx context.Context, store *Store, f *Findings) (sampled int, ofPool *keySample, err error) {
	sample, err := store.Sample(ctx)
	switch {
	case errors.Is(err, backend.ErrReply):
		f.addProblem("keys could not be looked at: %v", err)
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	}
	f.LeaseMS = sample.Lease.Milliseconds()
	keys := parseSample(sample)
	c.compareSample(keys, f)
	own := keys.ofPool(poolName(c.rules))
	return len(keys.keys), &own, nil
}

// compareHashLengths compares the lengths of the hashes with each other.
func compareHashLengths(s keySample, f *Findings) {
	switch lengths := s.hashLengths(); len(lengths) {
	case 0:
	case 1:
		f.addNote("the hashes in the keys have %d hexadecimal digits, %d bytes; a lookup's must have as many", 2*lengths[0], lengths[0])
	default:
		f.addProblem("the hashes in the keys have %s bytes: engines with different hash functions share this pool, give each a pool.cache_prefix", joinNumbers(lengths))
	}
}
