package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/hitline/hitline/internal/admission"
)

// Errors of a body: not JSON or cut off, or more than a request may have.
var (
	errSyntax = errors.New("not JSON")
	errMany   = errors.New("too many for one request")
)

// Errors of the value of a field.
var (
	errTwice = errors.New("is there twice, or under two names; give it once")
	errType  = errors.New("has another type, or a number that is too large; GET /openapi.yaml describes it")
	errOther = errors.New("is not known here, and ignoring it could change the answer; leave it out")
	// errTokens is errOther for a name that is easily taken for that of token_ids.
	errTokens = errors.New("is not known here; give the prompt's as token_ids")
	errLong   = fmt.Errorf("has more than %d bytes; give a shorter text", maxText)
)

const (
	// maxText bounds one text in bytes. Names have 256, so it is for salts.
	maxText = 4096
	// maxNames bounds the colons of a body, which are those behind names and in its texts. The decoder keeps all names of an
	// object, and takes many times their length for that.
	maxNames = 8 * maxText
	// minText is the memory for the text of a body at first. It doubles.
	minText = 4 << 10
	// maxKept bounds the bytes of lists that are kept for the next request. It is half of what a small one holds: it gets
	// none of a large one's.
	maxKept = admission.SmallBytes / 2
)

// readText reads a body whose request holds the memory for it as it arrives. It fails with a refusal, or as the body does.
func (c *call) readText(body io.Reader) ([]byte, error) {
	text := make([]byte, 0, minText)
	for {
		if len(text) == cap(text) {
			size := min(2*cap(text), maxBody+1) // 1 for the end
			if announced := int(c.http.ContentLength) + 1; announced > len(text) {
				size = min(size, announced)
			}
			if err := c.lease.hold(int64(size)); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, size), text...) // not a byte more than is held
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil: // chunks are wrong, or the end is missing
			return nil, fmt.Errorf("%w: %w", errSyntax, err)
		}
	}
}

// decode reads a body, an object, into the struct that to points to. Fields that the struct lacks are refused. It returns
// the bytes that the text takes. It fails with errSyntax, errMany, router.ErrField, or as readText does.
func (c *call) decode(body io.Reader, to any) (textBytes int64, err error) {
	text, err := c.readText(body)
	if err != nil {
		return 0, err
	}
	if bytes.Count(text, []byte(":")) > maxNames {
		return 0, fmt.Errorf("%w: more than %d names", errMany, maxNames)
	}
	if err := json.Unmarshal(text, to, json.RejectUnknownMembers(true)); err != nil {
		return 0, bodyError(err)
	}
	return int64(cap(text)), nil
}

// bodyError returns the error of a body for one of package json, without the Go types that it names.
func bodyError(err error) error {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return fmt.Errorf("%w: %w", errSyntax, err)
	}
	field, reason := strings.TrimPrefix(string(semantic.JSONPointer), "/"), semantic.Err
	switch {
	case errors.Is(reason, json.ErrUnknownName) && field == "tokens":
		reason = errTokens
	case errors.Is(reason, json.ErrUnknownName):
		reason = errOther
	case field == "":
		return fmt.Errorf("%w: the body must be an object", errSyntax)
	case errors.Is(reason, errMany):
		return fmt.Errorf("%w: %s", errMany, field)
	case reason == nil || errors.Is(reason, strconv.ErrSyntax) || errors.Is(reason, strconv.ErrRange):
		reason = errType
	}
	return wrongField(field, "%w", reason)
}
