package statuspage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

const (
	// maxExplainBody bounds the body of /explain in bytes: 120,000 hashes of 32 bytes, which is a
	// prompt of two million tokens.
	maxExplainBody = 8 << 20
	// explainTimeout bounds an explanation. Backends have shorter timeouts of their own.
	explainTimeout = 5 * time.Second
)

// explainRequest is the body of /explain.
type explainRequest struct {
	Pool   string   `json:"pool"`         // "" for the server's own
	Tokens *int64   `json:"tokens"`       // of the prompt; nil: those that the hashes cover
	Start  int64    `json:"start_tokens"` // that an engine holds itself; rounded down to where a lookup can begin
	Hashes []string `json:"hashes"`       // in hex
}

// explainReply is the reply to /explain.
type explainReply struct {
	api.Explanation
	Tokens        int64 `json:"tokens"` // of the prompt
	Hashes        int   `json:"hashes"` // how many
	HashBlockSize int   `json:"hash_block_size"`
}

// serveExplain answers /explain.
func (p *Page) serveExplain(w http.ResponseWriter, r *http.Request) {
	if !p.admitJSON(w, r) {
		return
	}
	reply, code, err := p.readAndExplain(w, r)
	if err != nil {
		writeError(w, code, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, reply)
}

// readAndExplain reads the body of a request and returns its reply, or an error and its status code.
func (p *Page) readAndExplain(w http.ResponseWriter, r *http.Request) (*explainReply, int, error) {
	if !acquire(p.explain) { // before the body is read, which bounds the memory of bodies
		return nil, http.StatusServiceUnavailable, errBusy
	}
	defer release(p.explain)
	var request explainRequest
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExplainBody))
	body.DisallowUnknownFields()
	err := body.Decode(&request)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", maxExplainBody)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf(`the body must be {"pool": "…", "tokens": …, "start_tokens": …, "hashes": ["…"]}: %w`, err)
	}
	return p.explanation(r.Context(), &request)
}

// explanation returns the reply to a request, or an error and its status code.
func (p *Page) explanation(ctx context.Context, request *explainRequest) (*explainReply, int, error) {
	pool, err := p.findPool(request.Pool)
	if err != nil {
		return nil, http.StatusNotFound, err
	}
	hashes, err := parseHashes(request.Hashes)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	config := pool.Service.Pool()
	if hashes.Len() > 0 && config.HashLen != 0 && hashes.HashLen() != config.HashLen {
		return nil, http.StatusBadRequest, fmt.Errorf("hashes of %d bytes; those of the pool have %d", hashes.HashLen(), config.HashLen)
	}
	tokens := int64(hashes.Len()) * int64(config.HashBlockSize)
	if request.Tokens != nil {
		tokens = *request.Tokens
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	if pool.Service.Backend() != nil {
		defer cpushare.Pause(ctx)() // it bounds its computing itself
	}
	e, err := pool.Service.Explain(ctx, tokens, pool.Service.Coordinator().HashesFrom(hashes, min(request.Start, tokens)))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, http.StatusGatewayTimeout, err
	case err != nil:
		return nil, http.StatusUnprocessableEntity, err
	}
	e.Pool = pool.Name
	return &explainReply{Explanation: e, Tokens: tokens, Hashes: hashes.Len(), HashBlockSize: config.HashBlockSize}, 0, nil
}

// findPool returns the pool of a name.
func (p *Page) findPool(name string) (server.ServedPool, error) {
	for _, pool := range p.server.Pools() {
		if pool.Name == name {
			return pool, nil
		}
	}
	if name == "" {
		return server.ServedPool{}, errors.New("the server has no pool of its own; name one")
	}
	return server.ServedPool{}, fmt.Errorf("no pool %q", name)
}

// parseHashes reads hashes in hex, all of one length.
func parseHashes(texts []string) (coordinator.Hashes, error) {
	var blob []byte
	hashLen := 0
	for i, text := range texts {
		hash, err := hex.DecodeString(text)
		switch {
		case err != nil || len(hash) == 0:
			return coordinator.Hashes{}, fmt.Errorf("hash %d is not in hex: %.20q", i+1, text)
		case len(hash) > netproto.MaxHashLen:
			return coordinator.Hashes{}, fmt.Errorf("hash %d has %d bytes; at most %d are possible", i+1, len(hash), netproto.MaxHashLen)
		case i > 0 && len(hash) != hashLen:
			return coordinator.Hashes{}, fmt.Errorf("hash %d has %d bytes, those before it %d; all must be of one length", i+1, len(hash), hashLen)
		}
		hashLen = len(hash)
		blob = append(blob, hash...)
	}
	return coordinator.NewHashes(blob, hashLen), nil
}
