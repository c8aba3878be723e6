package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"unsafe"

	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/netproto"
)

// holdersRequest is a holders request that is being received. Its hashes go into a query of the model's
// fleet as they arrive, and the answer is encoded in steps, so that many holders do not make a turn
// long. It belongs to one request from beginHolders to release.
type holdersRequest struct {
	params api.HoldersQuery
	model  *holders.Model
	query  fleet.Query
	wanted bool // further hashes can change the answer of the query

	ended   bool         // the query; result is set
	result  fleet.Result // of it, reused by the next request
	next    int          // the holder that is encoded next
	listed  int          // holders in text
	leftOut int          // holders behind those
	text    []byte       // the JSON so far
}

// Work of a holders request, in units of a turn.
const (
	queryByteWork  = 4  // decoding a byte of JSON: some 10 ns
	holderTextWork = 40 // of encoding a holder: some 100 ns
)

const (
	// holdersTail is more than what follows the holders in an answer.
	holdersTail = 128
	// keptHoldersBytes is how many bytes of an answer a pooled holdersRequest keeps: some 500 holders.
	keptHoldersBytes = 64 << 10
)

// Errors of holders requests. Peers get their texts.
var (
	errNoHolders     = errors.New("this server keeps no holders: configure fleet")
	errNotOfTenants  = errors.New("no such model among those that this connection may ask about")
	errOtherStore    = errors.New("the pool of the model has another backend than this server")
	errHoldersTokens = errors.New("num_tokens and limit must not be negative")
)

// holdersRequests holds the *holdersRequest of finished requests.
var holdersRequests = sync.Pool{New: func() any { return new(holdersRequest) }}

// beginHolders begins a holders request. All checks are made now, those of the store's hashes included.
// The caller must release the result, which is nil with an error.
func (s *session) beginHolders(q *netproto.Request) (*holdersRequest, error) {
	if s.server.cfg.Holders == nil {
		return nil, errNoHolders
	}
	if n, most := q.NumHashes, s.server.limits.Load().MaxHashes; n > most {
		return nil, fmt.Errorf("%w: %d, the limit is %d", errTooManyHashes, n, most)
	}
	s.workLeft -= len(q.HoldersQuery) * queryByteWork
	r := holdersRequests.Get().(*holdersRequest)
	if err := r.begin(s, q); err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

// begin decodes the query and finds the model.
func (r *holdersRequest) begin(s *session, q *netproto.Request) error {
	if err := decodeHoldersQuery(q.HoldersQuery, &r.params); err != nil {
		return err
	}
	f, model, err := s.server.cfg.Holders.Fleet(holders.ModelKey{Tenant: r.params.Tenant, Name: r.params.Model})
	if err == nil {
		r.model = model
	}
	if authErr := s.checkHolders(r); authErr != nil { // first: a tenant is not told whether there is a model
		return authErr
	}
	if err != nil {
		return err
	}
	if r.params.Loadable {
		if err := r.checkStore(s, q); err != nil {
			return err
		}
	}
	if q.NumHashes > 0 {
		r.wanted = true
		return r.query.Begin(f, q.HashLen)
	}
	return nil
}

// decodeHoldersQuery decodes the JSON of a holders request. As with pool a field that is not known is
// refused: what it asks for would be missing in the answer.
func decodeHoldersQuery(text []byte, query *api.HoldersQuery) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(query)
	if err == nil && decoder.More() {
		err = errors.New("text behind the object")
	}
	switch {
	case err != nil:
		return fmt.Errorf("the query of holders cannot be read: %s", describeJSONError(err))
	case query.NumTokens < 0 || query.Limit < 0:
		return errHoldersTokens
	}
	return nil
}

// checkHolders returns an error unless the peer may ask this now: a tenant only about models of its
// pools, and about the store only with the permission for lookups.
func (s *session) checkHolders(r *holdersRequest) error {
	if r.params.Loadable && !s.permissions.Allows(netproto.TagLookup) {
		return s.notAllowed(netproto.TagLookup)
	}
	if s.credential.IsTenant() && (r.model == nil || r.model.Service == nil || !s.credential.MayUse(r.model.Pool)) {
		return errNotOfTenants
	}
	return nil
}

// checkStore returns an error if the store of the model cannot be asked about these hashes.
func (r *holdersRequest) checkStore(s *session, q *netproto.Request) error {
	if r.model.Service == nil {
		return fmt.Errorf("%w: %q", holders.ErrNoPool, r.model.Name)
	}
	if backendOf(r.model.Service) != s.server.pools.backend { // the workers are those of the server's
		return errOtherStore
	}
	return r.model.CheckHashLen(q.HashLen)
}

// loadTokens returns how many tokens the lookup in the store is about, and whether they are unaligned:
// see lookup.Service.LookupPrompt.
func (r *holdersRequest) loadTokens(numHashes int) (n uint64, unaligned bool) {
	n = uint64(r.params.NumTokens)
	if n == 0 {
		n = uint64(numHashes) * uint64(r.model.Fleet.BlockSize)
	}
	rules := r.model.Service.Coordinator()
	over := n % uint64(rules.Alignment())
	if rules.NeedsAligned() {
		return n - over, false
	}
	return n, over != 0
}

// add adds the next hashes to the query. It returns false if no further one is needed.
func (r *holdersRequest) add(hashes []byte, workLeft *int) (wanted bool) {
	if r.wanted {
		worked := r.query.Work()
		r.wanted = r.query.Add(hashes)
		*workLeft -= r.query.Work() - worked
	}
	return r.wanted
}

// encode ends the query and encodes its holders within the work that is left. If it returns false there is
// more to do, and the next call goes on. numHashes is that of the request.
func (r *holdersRequest) encode(numHashes int, workLeft *int) (done bool) {
	if !r.ended {
		if numHashes == 0 {
			r.result.Holders = r.result.Holders[:0]
		} else if !r.end(workLeft) {
			return false
		}
		r.ended = true
		r.text = strconv.AppendInt(append(r.text[:0], `{"block_size":`...), int64(r.model.Fleet.BlockSize), 10)
		r.text = append(r.text, `,"holders":[`...)
	}
	for ; r.next < len(r.result.Holders); r.next++ {
		if *workLeft <= 0 {
			return false
		}
		*workLeft--
		p := &r.result.Holders[r.next]
		switch {
		case r.params.Instance != "" && p.Instance != r.params.Instance:
		case r.leftOut > 0 || r.params.Limit > 0 && r.listed == r.params.Limit || !r.appendHolder(p):
			r.leftOut++
		default:
			*workLeft -= holderTextWork
			r.listed++
		}
	}
	return true
}

// end ends the query within the work that is left. If it returns false, the next call goes on.
func (r *holdersRequest) end(workLeft *int) (done bool) {
	for !done && *workLeft > 0 {
		worked := r.query.Work()
		done = r.query.EndSome(&r.result, *workLeft)
		*workLeft -= r.query.Work() - worked
	}
	return done
}

// appendHolder appends a holder to the text. It returns false if that would be longer than a reply may be.
func (r *holdersRequest) appendHolder(p *fleet.Prefix) bool {
	before := len(r.text)
	if r.listed > 0 {
		r.text = append(r.text, ',')
	}
	r.text = appendJSONString(append(r.text, `{"instance":`...), p.Instance)
	r.text = strconv.AppendInt(append(r.text, `,"rank":`...), int64(p.Rank), 10)
	r.text = strconv.AppendInt(append(r.text, `,"tokens":`...), p.Tokens, 10)
	r.text = append(r.text, `,"media":{`...)
	for i, m := range p.Media {
		if i > 0 {
			r.text = append(r.text, ',')
		}
		r.text = strconv.AppendInt(append(appendJSONString(r.text, m.Medium), ':'), m.Tokens, 10)
	}
	r.text = append(r.text, "}}"...)
	if len(r.text) > api.MaxHoldersReply-holdersTail {
		r.text = r.text[:before]
		return false
	}
	return true
}

// appendJSONString appends a text in JSON.
func appendJSONString(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a text cannot fail
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), text...), '"')
}

// appendHoldersTail ends the JSON of an answer. loadable is how many tokens the store can load, nil if that was
// not asked.
func appendHoldersTail(dst []byte, leftOut int, loadable *int64) []byte {
	dst = append(dst, ']')
	if leftOut > 0 {
		dst = strconv.AppendInt(append(dst, `,"left_out":`...), int64(leftOut), 10)
	}
	if loadable != nil {
		dst = strconv.AppendInt(append(dst, `,"loadable_tokens":`...), *loadable, 10)
	}
	return append(dst, '}')
}

// held returns the bytes of memory that the request holds. r may be nil.
func (r *holdersRequest) held() int {
	if r == nil {
		return 0
	}
	return r.query.Held() + cap(r.text) + cap(r.result.Holders)*int(unsafe.Sizeof(fleet.Prefix{})+2*unsafe.Sizeof(fleet.MediumPrefix{}))
}

// release returns the request to the pool.
func (r *holdersRequest) release() {
	r.params, r.model, r.wanted, r.ended = api.HoldersQuery{}, nil, false, false
	r.next, r.listed, r.leftOut, r.text = 0, 0, 0, r.text[:0]
	if r.held() <= keptHoldersBytes {
		holdersRequests.Put(r)
	}
}

// releaseHolders releases a request, which may be nil.
func releaseHolders(r **holdersRequest) {
	if *r != nil {
		(*r).release()
		*r = nil
	}
}
