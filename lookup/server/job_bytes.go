package server

import "github.com/hitline/hitline/lookup/api"

// charge charges a job that has not been answered, as part of what its connection holds. It returns false, and charges
// it as before, if that is more and the connection may not hold it.
func (js *jobs) charge(j *job, bytes int) bool {
	s := js.session
	grown := bytes - j.bytes
	js.bytes += grown
	if grown > 0 && !s.conn.charge() {
		js.bytes -= grown
		return false
	}
	j.bytes = bytes
	return true
}

// workBytes returns how many more bytes a job takes at most, until its reply is sent: bits of its hashes, and the
// reply.
func (j *job) workBytes() (n int) {
	op := &operations[j.q.Tag]
	if op.lookup && j.copied != nil {
		n = bitBytes * len(j.pool.blockSizes) * (len(j.copied.B)/j.q.HashLen/64 + 1)
	}
	if op.replyBytes != nil {
		n += op.replyBytes(j)
	}
	return n
}

// bitBytes is how many bytes the rules take for 64 hashes in a group: three bits a hash over a store, and over memory
// two and what an explanation keeps of ranks.
const bitBytes = 3 * 8

// masksBytes bounds masks. After each run of a mask is a chunk that is in none.
func masksBytes(j *job) int {
	const header, run = 16, 8
	tokens, runs := max(j.lookup.numTokens, int64(j.q.Prompt.NumTokens)), int64(0)
	for _, size := range j.pool.blockSizes {
		runs = min(runs+tokens/int64(size)/2+1, api.MaxRuns)
	}
	return header*len(j.pool.blockSizes) + run*int(runs)
}

// explanationBytes bounds the reply to an explain.
func explanationBytes(j *job) int {
	const group, account = 512, 512 // their JSON
	return account + group*(1+len(j.pool.blockSizes)) + len(j.pool.name)
}

// statBytes bounds the reply to a stat.
func statBytes(j *job) int {
	const counters, quotes = 40 << 10, 3 // with the askers of a pool
	return counters + min(j.session.shared.pools.number(), api.MaxPoolNames)*(MaxPoolName+quotes)
}

// echoBytes bounds the reply to a ping.
func echoBytes(j *job) int { return max(len(j.q.Echo), len(j.session.shared.pongFor(nil))+20) }
