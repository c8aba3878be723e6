package httpapi

import (
	"cmp"
	"io"
	"iter"
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

// fixedMedia are in every answer about an engine, under these keys.
var fixedMedia = [...]fleet.MediumPrefix{{Medium: "gpu"}, {Medium: "cpu"}, {Medium: "disk"}}

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
	if n < 0 {
		e.media = append(e.media, m)
		return
	}
	e.media[n].Tokens = max(e.media[n].Tokens, m.Tokens)
}

// write writes what openapi.yaml calls an Answer.
func (a *answer) write(out io.Writer, tenant string) error {
	a.byEngine()
	a.err = nil
	a.encoder.Reset(out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // media are what engines say
	a.put(jsontext.BeginObject, jsontext.String("instances"), jsontext.BeginObject)
	for n := range a.engines {
		a.putEngine(&a.engines[n])
	}
	a.put(jsontext.EndObject, jsontext.String("tenant_id"), jsontext.String(tenant))
	if a.LoadableTokens >= 0 {
		a.put(jsontext.String("loadable_tokens"), jsontext.Int(a.LoadableTokens))
	}
	if a.LoadableUnknown != "" {
		a.put(jsontext.String("loadable_unknown"), jsontext.String(string(a.LoadableUnknown)))
	}
	a.putUnsure()
	a.putKVHints()
	a.put(jsontext.EndObject)
	return a.err
}

// putUnsure writes the engines that may have other blocks than the answer says: with the reasons of all their ranks, and with
// those of each rank.
func (a *answer) putUnsure() {
	if len(a.Unsure) == 0 {
		return
	}
	a.put(jsontext.String("unsure"), jsontext.BeginObject)
	for ranks := range unsureEngines(a.Unsure) {
		a.put(jsontext.String(ranks[0].Engine))
		a.putReasons(ranks)
	}
	a.put(jsontext.EndObject)
	if a.Unsure[0].Unknown { // then there is no other, and its ranks are not known
		return
	}
	a.put(jsontext.String("unsure_ranks"), jsontext.BeginObject)
	for ranks := range unsureEngines(a.Unsure) {
		a.put(jsontext.String(ranks[0].Engine), jsontext.BeginObject)
		for n := range ranks {
			a.put(jsontext.String(strconv.Itoa(ranks[n].Rank)))
			a.putReasons(ranks[n : n+1])
		}
		a.put(jsontext.EndObject)
	}
	a.put(jsontext.EndObject)
}

// unsureEngines returns the ranks of each engine. list is by engine.
func unsureEngines(list []router.Unsure) iter.Seq[[]router.Unsure] {
	return func(yield func([]router.Unsure) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && list[n].Engine == list[0].Engine {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// putReasons writes the reasons of ranks, each once.
func (a *answer) putReasons(ranks []router.Unsure) {
	a.reasons = a.reasons[:0]
	for n := range ranks {
		a.reasons = ranks[n].Reasons(a.reasons)
	}
	slices.Sort(a.reasons)
	a.put(jsontext.BeginArray)
	for _, reason := range slices.Compact(a.reasons) {
		a.put(jsontext.String(reason))
	}
	a.put(jsontext.EndArray)
}

// putKVHints writes the hints under the name of the engine from which they let fetch.
func (a *answer) putKVHints() {
	if a.KVHints == nil {
		return
	}
	a.put(jsontext.String("kv_hints"), jsontext.BeginObject, jsontext.String(a.KVHints.From.Engine))
	if a.err == nil {
		a.err = json.MarshalEncode(&a.encoder, a.KVHints)
	}
	a.put(jsontext.EndObject)
}

// putEngine writes engine: {"longest_matched": …, "gpu": …, "cpu": …, "disk": …, "dp": {…}, "media": {…}}.
func (a *answer) putEngine(e *engineAnswer) {
	a.put(jsontext.String(e.ranks[0].Engine), jsontext.BeginObject, jsontext.String("longest_matched"), jsontext.Int(e.longest))
	a.putMedia(e.media[:len(fixedMedia)])
	a.put(jsontext.String("dp"), jsontext.BeginObject)
	slices.SortFunc(e.ranks, func(a, b fleet.Prefix) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, p := range e.ranks {
		a.put(jsontext.String(strconv.Itoa(p.Rank)), jsontext.Int(p.Tokens))
	}
	a.put(jsontext.EndObject)
	if others := e.media[len(fixedMedia):]; len(others) > 0 {
		a.put(jsontext.String("media"), jsontext.BeginObject)
		a.putMedia(others)
		a.put(jsontext.EndObject)
	}
	a.put(jsontext.EndObject)
}

// putMedia writes what an engine has in media.
func (a *answer) putMedia(media []fleet.MediumPrefix) {
	for _, m := range media {
		a.put(jsontext.String(m.Medium), jsontext.Int(m.Tokens))
	}
}

// put writes tokens.
func (a *answer) put(tokens ...jsontext.Token) {
	for _, t := range tokens {
		if a.err == nil {
			a.err = a.encoder.WriteToken(t)
		}
	}
}
