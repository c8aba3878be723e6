package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
)

// tokenBytes is the length of a new token before it is encoded: too many bits to guess.
const tokenBytes = 32

// newTokenCmd returns the command that makes tokens.
func newTokenCmd() *cobra.Command {
	var asJSON bool
	var digest string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token, or print the digest of one",
		Long: `token prints a new random token for clients: 32 bytes in base64url. Write it to
a file that only they can read, and name that by --token-file.

With --digest it prints the SHA-256 digest of a token, in hex. A tokens file of
the server may have that, as sha256, in place of the token.

With --json: {"token": token} or {"sha256": digest}`,
		Example: "  (umask 077; hitline token > engines.token)\n  hitline token --digest engines.token",
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&digest, "digest", "", "print the digest of the token in the first line of this `file`; - is standard input")
	cli.JSONFlag(cmd.Flags(), &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("digest") {
			token := newToken()
			return cli.PrintResult(cmd, asJSON, map[string]string{"token": token}, token)
		}
		text, err := digestOf(digest, cmd.InOrStdin())
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, asJSON, map[string]string{"sha256": text}, text)
	}
	return cmd
}

// newToken returns a new random token.
func newToken() string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// digestOf returns the digest, in hex, of the token in a file, or in stdin if path is -.
func digestOf(path string, stdin io.Reader) (string, error) {
	if path == "" {
		return "", usagef("--digest names no file")
	}
	var token string
	var err error
	if path == "-" {
		token, err = api.ReadToken(stdin)
	} else {
		token, err = api.ReadTokenFile(path)
	}
	switch {
	case err != nil:
		return "", configError(err)
	case len(token) < access.MinToken:
		return "", configError(fmt.Errorf("the token has %d bytes, and a tokens file takes those of %d or more", len(token), access.MinToken))
	}
	// As in a tokens file: the line is more likely that of a wrong file.
	if strings.ContainsFunc(token, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) {
		return "", configError(errors.New("the token has white space or control characters; name a file with a token in its first line"))
	}
	sum := access.DigestOf([]byte(token))
	return hex.EncodeToString(sum[:]), nil
}
