package tokens

// Prompt are the numbers of one ask, which its header tells before any hash is read. All are at least 0, and Start is
// at most NumTokens and a multiple of the scheduler block size.
type Prompt struct {
	NumTokens int64
	Start     int64 // token at which the lookup begins
	NumHashes int   // hashes from Start on
}

// bounds are the tokens at which the places of a prompt begin and end: start ≤ blocks ≤ total.
type bounds struct {
	start  int64 // S: tokens before it are the engine's
	blocks int64 // F: end of the last whole block that has a hash
	total  int64 // T: end of the tokens that are accounted for
}

// bounds returns the bounds of a prompt. Tokens without a hash are accounted for up to one scheduler block: a peer may
// announce any number of them.
func (p *Prompt) bounds(pool *Pool) bounds {
	hashed := p.Start + int64(p.NumHashes)*pool.HashBlock
	end := min(p.NumTokens, hashed)
	return bounds{
		start:  p.Start,
		blocks: max(p.Start, end-end%pool.HashBlock),
		total:  min(p.NumTokens, max(p.Start, hashed)+pool.SchedulerBlock),
	}
}

// split are the tokens of a prompt. Lost is of one place or several, which the memory of what was asked tells.
type split struct {
	engine, pool, lost, rules, new, noAnswer int64
}

// splitUnanswered splits a prompt whose lookup had no answer.
func splitUnanswered(b bounds) split {
	return split{engine: b.start, noAnswer: b.blocks - b.start, rules: b.total - b.blocks}
}

// splitAnswered splits a prompt whose hit was hit tokens, and of which the first known blocks were asked for before or
// found. reachable is the hit that the rules give a pool which holds exactly these.
//
//	[0, start)                engine
//	[start, hit)              pool
//	[hit, reachable)          lost
//	[reachable, known)        rules
//	[max(reachable, known), blocks)  new
//	[blocks, total)           rules
func splitAnswered(b bounds, hit, known, reachable int64) split {
	hit = min(max(b.start, hit), b.blocks)
	known = min(max(b.start, known), b.blocks)
	reachable = min(max(hit, reachable), b.blocks)
	s := split{engine: b.start, pool: hit - b.start, lost: reachable - hit}
	s.rules = max(reachable, known) - reachable + b.total - b.blocks
	s.new = b.blocks - max(reachable, known)
	return s
}
