package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/netproto"
)

// TokenFileVariable is the environment variable with the file of the token that clients take by
// default.
const TokenFileVariable = "HITLINE_TOKEN_FILE"

// maxTokenLine bounds the first line of a file of a token in bytes, white space included.
const maxTokenLine = 4 << 10

// errToken begins the errors of ReadToken. None has any part of what was read.
var errToken = errors.New("no token")

// ReadToken returns the token in the first line of a text: 1 to netproto.MaxToken bytes, without
// the white space around it. What follows the line is not used. Errors do not tell what was read.
func ReadToken(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxTokenLine))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	token := bytes.TrimSpace(line)
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("%w: it is empty", errToken)
	case len(token) == 0:
		return "", fmt.Errorf("%w: the first line is empty", errToken)
	case len(token) > netproto.MaxToken:
		return "", fmt.Errorf("%w: the first line is over %d bytes", errToken, netproto.MaxToken)
	}
	return string(token), nil
}

// ReadTokenFile is ReadToken for a file, which its errors name. It must be a regular file: to
// open another could wait without end.
func ReadTokenFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("token file: %s is no regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	defer file.Close() // it is read only
	token, err := ReadToken(file)
	if err != nil {
		return "", fmt.Errorf("token file %s: %w", path, err)
	}
	return token, nil
}
