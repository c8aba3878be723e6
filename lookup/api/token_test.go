package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadToken(t *testing.T) {
	most := strings.Repeat("x", 255)
	for text, want := range map[string]string{
		"secret":                       "secret",
		" \tsecret \r\nanother\n":      "secret",
		"se cret\n":                    "se cret",
		most + "\n":                    most,
		strings.Repeat(" ", 99) + most: most,
	} {
		token, err := ReadToken(strings.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, want, token)
	}
	for text, want := range map[string]string{
		"":                               "no token: it is empty",
		" \nsecret\n":                    "no token: the first line is empty",
		most + "x":                       "no token: the first line is over 255 bytes",
		strings.Repeat(" ", 5000) + "se": "no token: the first line is empty",
	} {
		_, err := ReadToken(strings.NewReader(text))
		assert.EqualError(t, err, want)
	}
}

// An error names the file, and has nothing of what is in it.
func TestReadTokenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	_, err := ReadTokenFile(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, path)
	_, err = ReadTokenFile(dir)
	assert.EqualError(t, err, "token file: "+dir+" is no regular file")

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("secret", 99)), 0o600))
	_, err = ReadTokenFile(path)
	assert.EqualError(t, err, "token file "+path+": no token: the first line is over 255 bytes")

	require.NoError(t, os.WriteFile(path, []byte("secret\n"), 0o600))
	token, err := ReadTokenFile(path)
	require.NoError(t, err)
	assert.Equal(t, "secret", token)
}
