package httpapi

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// chooseModel sets the model of a request. Those that the sender may not ask about do not exist for the sender.
func (c *call) chooseModel(key *router.ModelKey) (err error) {
	if c.access.Pools != nil { // otherwise all exist
		*key, err = c.cfg.Service.FindModel(*key, c.access.mayUse)
	}
	return err
}

// query answers /query and /query_by_hash.
func (c *call) query() error {
	q := c.prompt.toQuery()
	if q.Loadable && c.access.Permissions&access.Lookup == 0 {
		return c.forbidden("loadable needs the permission %s, too", access.Lookup)
	}
	if err := c.chooseModel(&q.ModelKey); err != nil {
		return err
	}
	if q.Loadable || q.KVHints {
		if err := c.holdHashes(&q); err != nil {
			return err
		}
	}
	a := answers.Get().(*answer)
	defer answers.Put(a)
	if err := c.cfg.Service.Query(c.ctx, &q, &a.Answer); err != nil {
		return err
	}
	return a.write(replyWriter{c}, q.Tenant)
}

// replyWriter appends to the reply of a request. It yields the processor before each piece: hints are megabytes.
type replyWriter struct{ *call }

// Write implements io.Writer.
func (w replyWriter) Write(b []byte) (int, error) {
	cpushare.Yield(w.ctx)
	return w.reply.Write(b)
}

// holdHashes makes the request hold the hashes of its tokens, which are computed.
func (c *call) holdHashes(q *router.Query) error {
	return c.lease.hold(c.prompt.size() + c.cfg.Service.HashBytes(q)/4*5)
}

// predict answers /predict.
func (c *call) predict() error {
	q := c.prompt.toQuery()
	if err := c.chooseModel(&q.ModelKey); err != nil {
		return err
	}
	if err := c.holdHashes(&q); err != nil {
		return err
	}
	if err := c.cfg.Service.Predict(c.ctx, q.ModelKey, fleet.ID{Engine: q.Engine, Rank: c.prompt.Rank}, &q); err != nil {
		return err
	}
	return c.json(statusReply{Status: "predicted", Engine: q.Engine})
}

// answer is the answer to a query, and what writing it takes.
type answer struct {
	router.Answer
	engines []engineAnswer
	index   map[string]int // of engines, by name
	reasons []string       // of one engine
	encoder jsontext.Encoder
	err     error // the first of the encoder
}

// answers are those that are not used.
var answers = sync.Pool{New: func() any { return &answer{index: map[string]int{}} }}

// engineAnswer is what the ranks of one engine have, in tokens.
type engineAnswer struct {
	longest int64
	media   []fleet.MediumPrefix // the fixed ones first
	ranks   []fleet.Prefix
}

// fixedMedia are in every answer about an engine.
var fixedMedia = [...]fleet.MediumPrefix{{Medium: "GPU"}, {Medium: "CPU"}, {Medium: "DISK"}}

// byEngine joins the ranks of each engine, in the order of the answer.
func (a *answer) byEngine() {
	clear(a.index)
	a.engines = a.engines[:0]
	for _, p := range a.Holders {
		n, ok := a.index[p.Engine]
		if !ok {
			n = len(a.engines)
			a.index[p.Engine] = n
			a.engines = slices.Grow(a.engines, 1)[:n+1]
			e := &a.engines[n] // with the memory of an earlier answer
			*e = engineAnswer{media: append(e.media[:0], fixedMedia[:]...), ranks: e.ranks[:0]}
		}
		e := &a.engines[n]
		e.longest = max(e.longest, p.Tokens)
		e.ranks = append(e.ranks, p)
		for _, m := range p.Media {
			e.add(m)
		}
	}
}

// add counts what a rank has in one medium. Engines write the fixed ones in either case. The longest prefix of a rank
// counts: a request is served by one.
func (e *engineAnswer) add(m fleet.MediumPrefix) {
	n := slices.IndexFunc(fixedMedia[:], func(f fleet.MediumPrefix) bool { return strings.EqualFold(f.Medium, m.Medium) })
	if n < 0 {
		n = slices.IndexFunc(e.media, func(known fleet.MediumPrefix) bool { return known.Medium == m.Medium })
	}
	switch {
	case n >= 0:
		e.media[n].Tokens = max(e.media[n].Tokens, m.Tokens)
	case m.Medium != "DP" && m.Medium != "longest_matched": // these keys are taken, and no engine has such a medium
		e.media = append(e.media, m)
	}
}

// write writes {tenant: {engine: {…}}, "loadable_tokens": …, "unsure": {engine: [reason, …]}, "kv_hints": {engine: {…}}}.
func (a *answer) write(out io.Writer, tenant string) error {
	a.byEngine()
	a.err = nil
	a.encoder.Reset(out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // media are what engines say
	a.put(jsontext.BeginObject, jsontext.String(tenant), jsontext.BeginObject)
	for n := range a.engines {
		a.putEngine(&a.engines[n])
	}
	a.put(jsontext.EndObject)
	if a.LoadableTokens >= 0 {
		a.put(jsontext.String(router.LoadableKey), jsontext.Int(a.LoadableTokens))
	}
	if a.LoadableUnknown != "" {
		a.put(jsontext.String(router.LoadableUnknownKey), jsontext.String(string(a.LoadableUnknown)))
	}
	a.putUnsure()
	a.putKVHints()
	a.put(jsontext.EndObject)
	return a.err
}

// putUnsure writes the engines that may have other blocks than the answer says. The reasons are those of all ranks.
func (a *answer) putUnsure() {
	for n := 0; n < len(a.Unsure); {
		if n == 0 {
			a.put(jsontext.String(router.UnsureKey), jsontext.BeginObject)
		}
		engine := a.Unsure[n].Engine
		a.reasons = a.reasons[:0]
		for ; n < len(a.Unsure) && a.Unsure[n].Engine == engine; n++ {
			a.reasons = a.Unsure[n].Reasons(a.reasons)
		}
		slices.Sort(a.reasons)
		a.put(jsontext.String(engine), jsontext.BeginArray)
		for _, reason := range slices.Compact(a.reasons) {
			a.put(jsontext.String(reason))
		}
		a.put(jsontext.EndArray)
	}
	if len(a.Unsure) > 0 {
		a.put(jsontext.EndObject)
	}
}

// putKVHints writes the hints under the name of the engine from which they let fetch.
func (a *answer) putKVHints() {
	if a.KVHints == nil {
		return
	}
	a.put(jsontext.String(router.KVHintsKey), jsontext.BeginObject, jsontext.String(a.KVHints.From.Engine))
	if a.err == nil {
		a.err = json.MarshalEncode(&a.encoder, a.KVHints)
	}
	a.put(jsontext.EndObject)
}

// putEngine writes engine: {"longest_matched": …, "GPU": …, "DP": {…}, …}.
func (a *answer) putEngine(e *engineAnswer) {
	a.put(jsontext.String(e.ranks[0].Engine), jsontext.BeginObject, jsontext.String("longest_matched"), jsontext.Int(e.longest))
	for _, m := range e.media {
		a.put(jsontext.String(m.Medium), jsontext.Int(m.Tokens))
	}
	a.put(jsontext.String("DP"), jsontext.BeginObject)
	slices.SortFunc(e.ranks, func(a, b fleet.Prefix) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, p := range e.ranks {
		a.put(jsontext.String(strconv.Itoa(p.Rank)), jsontext.Int(p.Tokens))
	}
	a.put(jsontext.EndObject, jsontext.EndObject)
}

// put writes tokens.
func (a *answer) put(tokens ...jsontext.Token) {
	for _, t := range tokens {
		if a.err == nil {
			a.err = a.encoder.WriteToken(t)
		}
	}
}
