package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// loadableKey is beside the tenant's name in an answer, so no tenant is asked about that has this name.
const loadableKey = "loadable_tokens"

// json makes the reply.
func (c *call) json(reply any) error {
	return json.NewEncoder(&c.reply).Encode(reply)
}

// checkModel refuses models that the sender may not ask about: for the sender they do not exist.
func (c *call) checkModel() error {
	pool, err := c.cfg.Service.PoolName(c.body.key())
	switch {
	case c.access.Pools == nil:
		return nil // the request fails if there is no such model
	case err != nil || !c.access.mayUse(pool):
		return refuse(http.StatusNotFound, "no_model", "there is no such model for %q", c.access.Name)
	}
	return nil
}

// serviceQuery returns the query that a body asks.
func (r *request) serviceQuery(q *router.Query) {
	*q = router.Query{
		ModelKey: r.key(), Engine: r.instance, BlockSize: int(r.blockSize), Hashes: coordinator.NewHashes(r.hashes, r.hashLen),
		Tokens: r.tokens, Loadable: r.loadable, NumTokens: r.numTokens,
	}
	if r.lora != "" || r.salt != "" {
		q.Keys = &blockhash.ExtraKeys{Salt: r.salt}
	}
	if r.lora != "" {
		q.Keys.LoRA = &blockhash.LoRA{Name: r.lora, Path: r.loraPath}
	}
}

// checkPrompt refuses a body without tokens or hashes, or with both, and an adapter without its name: the hashes would be
// those of the base model.
func (r *request) checkPrompt(fields fieldSet) error {
	if r.loraPath != "" && r.lora == "" {
		return fmt.Errorf("%w lora_name: it is missing beside lora_path", errField)
	}
	switch r.seen & (fieldTokens | fieldHashes) {
	case fieldTokens | fieldHashes:
		return fmt.Errorf("%w token_ids: there are seq_hashes, too", errField)
	case 0:
		name := "token_ids"
		if fields&fieldTokens == 0 {
			name = "seq_hashes"
		}
		return fmt.Errorf("%w %s: it is missing", errField, name)
	}
	return nil
}

// answers pools the answers of requests.
var answers = sync.Pool{New: func() any { return new(router.Answer) }}

// query answers /query and /query_by_hash.
func (c *call) query() error {
	r := c.body
	if err := r.checkPrompt(c.endpoint.fields); err != nil {
		return err
	}
	if r.tenant == loadableKey {
		return fmt.Errorf("%w tenant_id: no tenant has this name", errField)
	}
	if r.loadable && c.access.Permissions&access.Lookup == 0 {
		return c.forbidden("loadable needs the permission %s, too", access.Lookup)
	}
	if err := c.checkModel(); err != nil {
		return err
	}
	a := answers.Get().(*router.Answer)
	defer answers.Put(a)
	var q router.Query
	r.serviceQuery(&q)
	if err := c.cfg.Service.Query(c.ctx, &q, a); err != nil {
		return err
	}
	c.reply.Write(appendAnswer(nil, cmp.Or(r.tenant, router.DefaultTenant), a))
	return nil
}

// fixedMedia are in every answer about an instance.
var fixedMedia = [...]string{"GPU", "CPU", "DISK"}

// instanceAnswer is what the ranks of one instance have, in tokens.
type instanceAnswer struct {
	name    string
	longest int64
	fixed   [len(fixedMedia)]int64
	others  map[string]int64 // further media, nil if there are none
	ranks   []fleet.Prefix
}

// byInstance joins the ranks of each instance, in the order of the answer. For each medium the longest prefix of
// a rank counts: a request is served by one.
func byInstance(a *router.Answer) []*instanceAnswer {
	var list []*instanceAnswer
	index := make(map[string]*instanceAnswer, len(a.Holders))
	for _, p := range a.Holders {
		i := index[p.Engine]
		if i == nil {
			i = &instanceAnswer{name: p.Engine}
			index[p.Engine] = i
			list = append(list, i)
		}
		i.longest = max(i.longest, p.Tokens)
		i.ranks = append(i.ranks, p)
		for _, m := range p.Media {
			i.add(m)
		}
	}
	return list
}

// add counts what a rank has in one medium. Engines write the fixed ones in either case.
func (i *instanceAnswer) add(m fleet.MediumPrefix) {
	for n, name := range fixedMedia {
		if strings.EqualFold(name, m.Medium) {
			i.fixed[n] = max(i.fixed[n], m.Tokens)
			return
		}
	}
	if m.Medium == "DP" || m.Medium == "longest_matched" {
		return // these keys are taken, and no engine has such a medium
	}
	if i.others == nil {
		i.others = map[string]int64{}
	}
	i.others[m.Medium] = max(i.others[m.Medium], m.Tokens)
}

// appendAnswer appends {tenant: {instance: {…}}, "loadable_tokens": …}.
func appendAnswer(b []byte, tenant string, a *router.Answer) []byte {
	b = append(b, '{')
	b = append(appendText(b, tenant), ":{"...)
	for n, i := range byInstance(a) {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, i.name), ':')
		b = i.append(b)
	}
	b = append(b, '}')
	if a.LoadableTokens >= 0 {
		b = append(b, `,"`+loadableKey+`":`...)
		b = strconv.AppendInt(b, a.LoadableTokens, 10)
	}
	return append(b, "}\n"...)
}

// append appends {"longest_matched": …, "GPU": …, "DP": {…}, …}.
func (i *instanceAnswer) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"longest_matched":`...), i.longest, 10)
	for n, name := range fixedMedia {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = strconv.AppendInt(b, i.fixed[n], 10)
	}
	b = append(b, `,"DP":{`...)
	slices.SortFunc(i.ranks, func(a, b fleet.Prefix) int { return cmp.Compare(a.Rank, b.Rank) })
	for n, p := range i.ranks {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, '"'), int64(p.Rank), 10), `":`...)
		b = strconv.AppendInt(b, p.Tokens, 10)
	}
	b = append(b, '}')
	for _, medium := range slices.Sorted(maps.Keys(i.others)) {
		b = append(appendText(append(b, ','), medium), ':')
		b = strconv.AppendInt(b, i.others[medium], 10)
	}
	return append(b, '}')
}

// appendText appends a text in JSON.
func appendText(b []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts can always be written
	}
	return append(b, quoted...)
}

// predict answers /predict.
func (c *call) predict() error {
	r := c.body
	if err := r.checkPrompt(fieldsOfPredict); err != nil {
		return err
	}
	if err := r.need(fieldInstance, "instance_id", r.instance); err != nil {
		return err
	}
	if err := c.checkModel(); err != nil {
		return err
	}
	var q router.Query
	r.serviceQuery(&q)
	if err := c.cfg.Service.Predict(r.key(), fleet.ID{Engine: r.instance, Rank: int(r.rank)}, &q); err != nil {
		return err
	}
	return c.json(changed{Status: "predicted", Instance: r.instance})
}
