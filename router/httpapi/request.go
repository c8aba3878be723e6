package httpapi

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/netproto"
	"github.com/hitline/hitline/router"
)

// request is the body of any request. Its texts are the request's own; tokens and hashes are reused.
type request struct {
	decoder decoder
	limits  *Limits

	seen fieldSet // fields that were there and not null

	fieldValues
	tokens  []int64
	hashes  []byte // joined
	hashLen int    // of each, 0 if there is none
}

// fieldValues are the values of all fields but lists.
type fieldValues struct {
	endpoint, replay, engine, model, tenant, instance, lora, loraPath, salt, extraSalt string
	blockSize, rank, numTokens                                                         int64
	loadable                                                                           bool
}

// Errors of a body that is JSON.
var (
	errField = errors.New("field") // of another type, out of range, twice, or missing
	errMany  = errors.New("too many for one request")
)

// field is a bit for each field.
type fieldSet uint32

const (
	fieldEndpoint fieldSet = 1 << iota
	fieldReplay
	fieldEngine
	fieldModel
	fieldTenant
	fieldInstance
	fieldLoRA
	fieldLoRAPath
	fieldSalt
	fieldExtraSalt
	fieldBlockSize
	fieldRank
	fieldNumTokens
	fieldLoadable
	fieldTokens
	fieldHashes
)

// Which fields a request has. Others are skipped, of whatever type they are.
const (
	fieldsOfQuery = fieldModel | fieldTenant | fieldInstance | fieldLoRA | fieldLoRAPath | fieldSalt | fieldBlockSize |
		fieldLoadable | fieldTokens
	fieldsOfQueryByHash = fieldModel | fieldTenant | fieldInstance | fieldBlockSize | fieldLoadable | fieldNumTokens | fieldHashes
	fieldsOfPredict     = fieldModel | fieldTenant | fieldInstance | fieldRank | fieldLoRA | fieldLoRAPath | fieldSalt | fieldBlockSize |
		fieldTokens | fieldHashes
	fieldsOfUnregister = fieldEngine | fieldModel | fieldTenant | fieldInstance | fieldBlockSize | fieldRank
	fieldsOfRegister   = fieldsOfUnregister | fieldEndpoint | fieldReplay | fieldExtraSalt
)

// fieldRule says how a field is read.
type fieldRule struct {
	field fieldSet
	name  string // in errors
	read  func(*request) error
}

// fieldRules has the fields by name. Some have two: model and modelname, seq_hashes and the older block_hash.
var fieldRules = map[string]fieldRule{
	"endpoint":        textField(fieldEndpoint, "endpoint", func(r *request) *string { return &r.endpoint }),
	"replay_endpoint": textField(fieldReplay, "replay_endpoint", func(r *request) *string { return &r.replay }),
	"type":            textField(fieldEngine, "type", func(r *request) *string { return &r.engine }),
	"model":           textField(fieldModel, "model", func(r *request) *string { return &r.model }),
	"modelname":       textField(fieldModel, "modelname", func(r *request) *string { return &r.model }),
	"tenant_id":       textField(fieldTenant, "tenant_id", func(r *request) *string { return &r.tenant }),
	"instance_id":     textField(fieldInstance, "instance_id", func(r *request) *string { return &r.instance }),
	"lora_name":       textField(fieldLoRA, "lora_name", func(r *request) *string { return &r.lora }),
	"lora_path":       textField(fieldLoRAPath, "lora_path", func(r *request) *string { return &r.loraPath }),
	"cache_salt":      textField(fieldSalt, "cache_salt", func(r *request) *string { return &r.salt }),
	"additionalsalt":  textField(fieldExtraSalt, "additionalsalt", func(r *request) *string { return &r.extraSalt }),
	"block_size":      numberField(fieldBlockSize, "block_size", func(r *request) *int64 { return &r.blockSize }, 1, math.MaxInt32),
	"dp_rank":         numberField(fieldRank, "dp_rank", func(r *request) *int64 { return &r.rank }, 0, math.MaxUint16),
	"num_tokens":      numberField(fieldNumTokens, "num_tokens", func(r *request) *int64 { return &r.numTokens }, 0, math.MaxInt64),
	"loadable":        {fieldLoadable, "loadable", (*request).readLoadable},
	"token_ids":       {fieldTokens, "token_ids", (*request).readTokens},
	"seq_hashes":      {fieldHashes, "seq_hashes", (*request).readHashes},
	"block_hash":      {fieldHashes, "block_hash", (*request).readHashes},
}

func textField(f fieldSet, name string, of func(*request) *string) fieldRule {
	return fieldRule{f, name, func(r *request) error {
		text, err := r.decoder.readText()
		*of(r) = text
		return err
	}}
}

func numberField(f fieldSet, name string, of func(*request) *int64, least, most int64) fieldRule {
	return fieldRule{f, name, func(r *request) (err error) {
		v, err := r.decoder.readInt()
		if err == nil && (v < least || v > most) {
			return fmt.Errorf("%w: it is %d to %d", errRange, least, most)
		}
		*of(r) = v
		return err
	}}
}

// requests are those that are not used.
var requests = sync.Pool{New: func() any { return new(request) }}

// maxKept bounds what a request keeps for the next one, in bytes of tokens and of hashes: prompts of 200,000 tokens.
const maxKept = 2 << 20

// newRequest returns an empty request, to be released.
func newRequest(limits *Limits) *request {
	r := requests.Get().(*request)
	r.clear()
	r.limits = limits
	return r
}

// clear drops what was read. It keeps the memory.
func (r *request) clear() {
	r.seen, r.fieldValues = 0, fieldValues{}
	r.tokens, r.hashes, r.hashLen = r.tokens[:0], r.hashes[:0], 0
}

func (r *request) release() {
	r.decoder.release()
	if 8*cap(r.tokens) > maxKept {
		r.tokens = nil
	}
	if cap(r.hashes) > maxKept {
		r.hashes = nil
	}
	requests.Put(r)
}

// read reads a body with these fields. It fails with errSyntax, errField, errMany or as the body does.
func (r *request) read(body io.Reader, fields fieldSet) error {
	r.decoder.reset(body)
	return r.decoder.object(func(name string) error {
		rule, ok := fieldRules[name]
		if !ok || fields&rule.field == 0 {
			return r.decoder.skip()
		}
		return r.readField(&rule)
	})
}

// readField reads the value of a field. null is as if it were not there.
func (r *request) readField(rule *fieldRule) error {
	if null, err := r.decoder.isNull(); null || err != nil {
		return err
	}
	if r.seen&rule.field != 0 {
		return fmt.Errorf("%w %s: it is there twice, or under two names", errField, rule.name)
	}
	r.seen |= rule.field
	switch err := rule.read(r); {
	case errors.Is(err, errType), errors.Is(err, errInteger), errors.Is(err, errRange), errors.Is(err, errLong):
		return fmt.Errorf("%w %s: %w", errField, rule.name, err)
	case errors.Is(err, errMany):
		return fmt.Errorf("%s: %w", rule.name, err)
	default:
		return err
	}
}

func (r *request) readLoadable() (err error) {
	r.loadable, err = r.decoder.readBool()
	return err
}

func (r *request) readTokens() error {
	return r.decoder.list(func(token jsontext.Token) error {
		v, err := integer(token)
		switch {
		case err != nil:
			return fmt.Errorf("element %d: %w", len(r.tokens), err)
		case len(r.tokens) == r.limits.MaxTokens:
			return fmt.Errorf("%w: at most %d token ids", errMany, r.limits.MaxTokens)
		}
		r.tokens = append(r.tokens, v)
		return nil
	})
}

// readHashes reads hashes: numbers of 64 bits, with a sign or without, or digests in hex, all of one length.
func (r *request) readHashes() error {
	n := 0
	return r.decoder.list(func(token jsontext.Token) error {
		if n == r.limits.MaxHashes {
			return fmt.Errorf("%w: at most %d hashes", errMany, r.limits.MaxHashes)
		}
		from := len(r.hashes)
		if err := r.appendHash(token); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		length := len(r.hashes) - from
		if n > 0 && length != r.hashLen {
			return fmt.Errorf("element %d: %w: a hash of %d bytes behind those of %d", n, errType, length, r.hashLen)
		}
		r.hashLen = length
		n++
		return nil
	})
}

// shortHashLen is the length of a hash that is a number, in bytes.
const shortHashLen = 8

// appendHash appends one hash.
func (r *request) appendHash(token jsontext.Token) (err error) {
	text := token.String()
	switch token.Kind() {
	case jsontext.KindString:
		return r.appendHex(text)
	case jsontext.KindNumber:
	default:
		return errType
	}
	var v uint64
	if text[0] == '-' {
		var signed int64
		signed, err = strconv.ParseInt(text, 10, 64)
		v = uint64(signed) //nolint:gosec // the same 64 bits
	} else {
		v, err = strconv.ParseUint(text, 10, 64)
	}
	r.hashes = binary.BigEndian.AppendUint64(r.hashes, v)
	return integerError(err)
}

// appendHex appends a hash that is a text in hex.
func (r *request) appendHex(text string) (err error) {
	if n := len(text); n < 2*shortHashLen || n > 2*netproto.MaxHashLen {
		return fmt.Errorf("%w: a hash in hex has %d to %d bytes", errRange, shortHashLen, netproto.MaxHashLen)
	}
	if r.hashes, err = hex.AppendDecode(r.hashes, []byte(text)); err != nil {
		return fmt.Errorf("%w: a hash that is no number must be in hex", errType)
	}
	return nil
}

// key returns the model that a request is about.
func (r *request) key() router.ModelKey { return router.ModelKey{Tenant: r.tenant, Name: r.model} }

// need returns an error if a field is missing or an empty text.
func (r *request) need(f fieldSet, name, text string) error {
	if r.seen&f == 0 || text == "" {
		return fmt.Errorf("%w %s: it is missing", errField, name)
	}
	return nil
}
