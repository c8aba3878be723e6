package coordinator

// laterFields are the fields that vLLM has only from some release on. exists reports whether
// a release with these rules has the field.
var laterFields = []struct {
	name, since string
	exists      func(*rules) bool
	isSet       func(*Pool) bool
}{
	{"capacity_only", "0.27.0", func(r *rules) bool { return r.floorsTokens }, func(p *Pool) bool { return p.CapacityOnly }},
	{"store_tp_size", "0.30.0", hasNamespaces, func(p *Pool) bool { return p.StoreTPSize != nil }},
	{"enable_store_tp_lcm", "0.30.0", hasNamespaces, func(p *Pool) bool { return p.EnableStoreTPLCM }},
	{"prefill_tp_sizes", "0.30.0", hasNamespaces, func(p *Pool) bool { return len(p.PrefillTPSizes) > 0 }},
	{"cache_hit_alignment_tokens", "0.32.0", func(r *rules) bool { return r.fineGrained == fineGrainedConfigured }, func(p *Pool) bool { return p.CacheHitAlignmentTokens != 0 }},
}

// laterGroupFields are likewise fields of a group.
var laterGroupFields = []struct {
	name, since string
	exists      func(*rules) bool
	isSet       func(*Group) bool
}{
	{"rswa_window", "0.25.0", func(r *rules) bool { return r.startToken }, func(g *Group) bool { return g.RSWAWindow != 0 }},
	{"extra_retained_tokens", "0.28.0", func(r *rules) bool { return r.floorsTokens }, func(g *Group) bool { return g.ExtraRetainedTokens != 0 }},
	{"enable_kv_transfer", "0.29.0", func(r *rules) bool { return r.dropsUntransferred }, func(g *Group) bool { return g.EnableKVTransfer != nil && !*g.EnableKVTransfer }},
	{"bounded_replay", "0.30.0", func(r *rules) bool { return r.dropsScratch }, func(g *Group) bool { return g.BoundedReplay }},
}

func hasNamespaces(r *rules) bool { return r.namespaces }

// validateFields refuses fields that the pool's release does not have: without effect they
// would hide that the release is wrong.
func (p *Pool) validateFields() error {
	release := &revisionRules[p.Revision]
	for _, field := range laterFields {
		if field.isSet(p) && !field.exists(release) {
			return p.laterField(field.name, field.since)
		}
	}
	for g := range p.Groups {
		for _, field := range laterGroupFields {
			if field.isSet(&p.Groups[g]) && !field.exists(release) {
				return p.laterField(groupPath(g)+"."+field.name, field.since)
			}
		}
	}
	return nil
}

// laterField is the error of a field that the pool's release does not have.
func (p *Pool) laterField(field, since string) error {
	if p.VLLM == "" {
		return invalid([]string{field, "vllm"}, "%s exists from vLLM %s on: set vllm to the engine's release, or remove it", field, since)
	}
	return invalid([]string{field, "vllm"}, "%s exists from vLLM %s on, vllm is %s: remove it, or correct vllm", field, since, p.VLLM)
}
