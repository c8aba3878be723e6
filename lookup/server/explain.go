package server

import (
	"context"
	"net"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
)

// Requests to explain a lookup.

func runExplain(ctx context.Context, j *job) error {
	e, err := j.service.Explain(ctx, j.lookup.numTokens, j.hashes())
	if err != nil {
		return err
	}
	e.Pool, e.Account = j.pool.name, j.explainTokens(&e)
	return j.doneJSON(e)
}

// explainTokens returns where the tokens of an explained prompt would be counted now. Peers that the server does not
// know are told neither the place of lost tokens nor exact times.
func (j *job) explainTokens(e *api.Explanation) *api.LostTokens {
	hashes := j.hashes()
	a := j.pool.account.NewAsk("", tokens.Prompt{NumTokens: j.lookup.numTokens, Start: j.lookup.start, NumHashes: j.q.NumHashes})
	if a == nil {
		return nil
	}
	defer a.Drop()
	addAll(a, hashes)
	a.Fill(e.HitTokens, e.Ending)
	told := j.session.shared.accounts.Explain(a)
	if !isKnown(j.session.conn.peer, j.credential) {
		lost := int64(0)
		for p := range tokens.NumPlaces {
			if p.IsLost() {
				lost += told.Tokens[p.String()]
				delete(told.Tokens, p.String())
			}
		}
		if told.Place != "" {
			told.Tokens[missing], told.Place = lost, missing
		}
		const exact = 10 * time.Minute
		for _, at := range []*time.Time{&told.AskedAt, &told.WholeAt, &told.RemembersSince} {
			*at = at.Truncate(exact)
		}
	}
	return &told
}

// missing stands for the place of lost tokens where it is not told.
const missing = "missing"

// isKnown reports whether a peer with a credential, nil for none, is told of single prompts, and of others: it is of
// this machine, or has one.
func isKnown(peer net.Addr, c *access.Credential) bool {
	switch peer := peer.(type) {
	case *net.TCPAddr:
		return c != nil || peer.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return c != nil
}

// explanationBytes bounds the reply to an explain.
func explanationBytes(j *job) int {
	const group, account = 512, 512 // their JSON
	return account + group*(1+len(j.pool.blockSizes)) + len(j.pool.name)
}
