package coordinator

import "cmp"

// laterField is a field that vLLM has only from a release on.
type laterField struct {
	name, since string
	isSet       bool
}

// laterFields returns those of p outside its groups.
func (p *Pool) laterFields() []laterField {
	return []laterField{
		{"capacity_only", "0.27.0", p.CapacityOnly},
		{"store_tp_size", "0.30.0", p.StoreTPSize != nil},
		{"enable_store_tp_lcm", "0.30.0", p.EnableStoreTPLCM},
		{"prefill_tp_sizes", "0.30.0", len(p.PrefillTPSizes) > 0},
		{"cache_hit_alignment_tokens", "0.32.0", p.CacheHitAlignmentTokens != 0},
	}
}

// laterFields returns those of g.
func (g *Group) laterFields() []laterField {
	return []laterField{
		{"rswa_window", "0.25.0", g.RSWAWindow != 0},
		{"extra_retained_tokens", "0.28.0", g.ExtraRetainedTokens != 0},
		{"enable_kv_transfer", "0.29.0", g.EnableKVTransfer != nil && !*g.EnableKVTransfer},
		{"bounded_replay", "0.30.0", g.BoundedReplay},
	}
}

// laterKinds are the kinds that vLLM has only from a release on, and to another if until is
// set.
var laterKinds = map[Kind]struct{ since, until string }{
	RSWA:             {since: "0.25.0"},
	CircularBuffer:   {since: "0.28.0"},
	HiSparseHot:      {since: "0.30.0"},
	HiSparseResident: {since: "0.30.0"},
	KPoolTail:        {since: "0.30.0", until: "0.31.0"},
}

// validateFields refuses fields and kinds that the pool's release does not have: without
// effect they would hide that the release is wrong.
func (p *Pool) validateFields() error {
	release := p.releaseName()
	for _, field := range p.laterFields() {
		if field.isSet && isNewer(field.since, release) {
			return p.wrongField(field.name, field.name, "from vLLM "+field.since+" on")
		}
	}
	for g := range p.Groups {
		group := &p.Groups[g]
		for _, field := range group.laterFields() {
			if field.isSet && isNewer(field.since, release) {
				path := groupPath(g) + "." + field.name
				return p.wrongField(path, path, "from vLLM "+field.since+" on")
			}
		}
		kind, ok := laterKinds[group.Kind]
		switch what := "kind " + group.Kind.String(); {
		case !ok:
		case kind.until != "" && (isNewer(kind.since, release) || isNewer(release, kind.until)):
			return p.wrongField(groupPath(g)+".kind", what, "from vLLM "+kind.since+" to "+kind.until)
		case isNewer(kind.since, release):
			return p.wrongField(groupPath(g)+".kind", what, "from vLLM "+kind.since+" on")
		}
	}
	return nil
}

// wrongField is the error of a field that the pool's release does not have. what is the field
// or its value.
func (p *Pool) wrongField(field, what, when string) error {
	if p.VLLM == "" {
		return invalid([]string{field, "vllm"}, "%s exists %s: set vllm to the engine's release, or remove it", what, when)
	}
	return invalid([]string{field, "vllm"}, "%s exists %s, vllm is %s: remove it, or correct vllm", what, when, p.VLLM)
}

// releaseName is VLLM or, if that is "", the name of the default's lookups.
func (p *Pool) releaseName() string { return cmp.Or(p.VLLM, defaultRelease.name) }
