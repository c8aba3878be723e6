package statuspage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

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
	Pool   string          `json:"pool"`   // "" for the server's own
	Tokens *int64          `json:"tokens"` // of the prompt; nil: those that the hashes cover
	Hashes json.RawMessage `json:"hashes"` // see hashesOf
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
	if !p.guard.admitJSON(w, r) {
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
	if err == nil {
		err = endOf(body)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", maxExplainBody)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf(`the body must be {"pool": "…", "tokens": …, "hashes": "…"}: %w`, err)
	}
	return p.explanation(r.Context(), &request)
}

// endOf returns an error if something follows what a decoder has read.
func endOf(body *json.Decoder) error {
	_, err := body.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("something follows it")
}

// explanation returns the reply to a request, or an error and its status code.
func (p *Page) explanation(ctx context.Context, request *explainRequest) (*explainReply, int, error) {
	pool, err := p.findPool(request.Pool)
	if err != nil {
		return nil, http.StatusNotFound, err
	}
	hashes, err := hashesOf(request.Hashes)
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
	e, err := pool.Service.Explain(ctx, tokens, hashes)
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

var errHashes = errors.New("hashes must be a text or a list of texts, each hash in hex")

// hashesOf reads hashes in hex from a JSON value: a text in which they are separated by white space
// or commas, which may have the brackets and quotes of a list, or a list of texts. Numbers are refused: their
// digits would be taken for hex.
func hashesOf(value json.RawMessage) (netproto.Hashes, error) {
	if len(value) == 0 {
		return netproto.Hashes{}, nil
	}
	var text string
	var list []string
	if json.Unmarshal(value, &text) == nil {
		return parseHashes(text)
	}
	if json.Unmarshal(value, &list) == nil {
		return parseHashes(strings.Join(list, ","))
	}
	return netproto.Hashes{}, errHashes
}

// separators are what may stand between two hashes.
const separators = " \t\r\n,;[]\"'"

// parseHashes reads hashes in hex, all of one length.
func parseHashes(text string) (netproto.Hashes, error) {
	blob, hashLen, count := make([]byte, 0, len(text)/2), 0, 0
	for {
		text = strings.TrimLeft(text, separators)
		if text == "" {
			return netproto.NewHashes(blob, hashLen), nil
		}
		end := strings.IndexAny(text, separators)
		if end < 0 {
			end = len(text)
		}
		digits := text[:end]
		text = text[end:]
		count++
		before := len(blob)
		var err error
		if blob, err = hex.AppendDecode(blob, []byte(digits)); err != nil {
			return netproto.Hashes{}, fmt.Errorf("hash %d is not in hex: %.20q", count, digits)
		}
		n := len(blob) - before
		switch {
		case n > netproto.MaxHashLen:
			return netproto.Hashes{}, fmt.Errorf("hash %d has %d bytes; at most %d are possible", count, n, netproto.MaxHashLen)
		case hashLen != 0 && n != hashLen:
			return netproto.Hashes{}, fmt.Errorf("hash %d has %d bytes, those before it %d; all must be of one length", count, n, hashLen)
		}
		hashLen = n
	}
}
