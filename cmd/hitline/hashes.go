package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// hashList is the contents of a hashes file.
type hashList struct {
	blob    []byte // the hashes joined
	hashLen int    // of one hash in bytes, 0 without hashes
	start   uint32 // token at which the lookup begins
}

// count returns the number of hashes.
func (l hashList) count() int {
	if l.hashLen == 0 {
		return 0
	}
	return len(l.blob) / l.hashLen
}

// forRequest returns the hashes as a request has them. They share the list's memory.
func (l hashList) forRequest() coordinator.Hashes {
	return coordinator.NewHashes(l.blob, l.hashLen).From(int64(l.start))
}

// hashesFlag defines the flag that names a hashes file.
func hashesFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("hashes-file", "", "`file` with one hash in hex a line, all of one length; - is standard input (required)")
}

// loadHashes reads the file that --hashes-file names.
func loadHashes(cmd *cobra.Command, name string) (hashList, error) {
	in, name, err := openInput(cmd, name, "hashes")
	if err != nil {
		return hashList{}, err
	}
	defer in.Close() // read only: Close cannot lose data
	list, err := readHashes(name, in)
	if err == nil && list.count() == 0 {
		err = configError(fmt.Errorf("%s is empty: give at least one hash, in hex; a prompt shorter than a block has none", name))
	}
	return list, err
}

// openInput opens the file that a flag names, - for standard input. It returns the file's name for errors, too. what says
// what is in the file.
func openInput(cmd *cobra.Command, path, what string) (in io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(cmd.InOrStdin()), "standard input", nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, "", configError(fmt.Errorf("cannot read the %s: %s is a directory; name a file, or - for standard input", what, path))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, "", configError(fmt.Errorf("cannot read the %s: %w", what, err))
	}
	return file, path, nil
}

// requireFlags refuses a command without some flags, and names all that are missing.
func requireFlags(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); !f.Changed || f.Value.String() == "" {
			missing = append(missing, name)
		}
	}
	return cli.Required(missing...)
}

// maxLine bounds a line of a hashes file in bytes; only comments are long.
const maxLine = 64 << 10

// byteOrderMark is what some editors write at the start of a text.
const byteOrderMark = "\ufeff"

// readHashes reads hashes from in. Errors begin with name:line.
func readHashes(name string, in io.Reader) (hashList, error) {
	var list hashList
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 4096), maxLine)
	lineNumber := 0
	for lines.Scan() {
		line := lines.Text()
		if lineNumber++; lineNumber == 1 {
			line = strings.TrimPrefix(line, byteOrderMark)
		}
		if err := list.addLine(strings.TrimSpace(line)); err != nil {
			return hashList{}, configError(fmt.Errorf("%s:%d: %w", name, lineNumber, err))
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return hashList{}, configError(fmt.Errorf("%s:%d: line longer than %d bytes; write one hash a line", name, lineNumber+1, maxLine))
	case err != nil:
		return hashList{}, configError(fmt.Errorf("cannot read the hashes: %s:%d: %w", name, lineNumber+1, err))
	}
	return list, nil
}

// addLine adds the hash in a line without surrounding spaces. Digits may follow 0x, as Python prints them. It skips blank
// lines and comments.
func (l *hashList) addLine(line string) error {
	if line == "" || line[0] == '#' {
		return nil
	}
	digits := strings.TrimPrefix(line, "0x")
	n := len(digits) / 2
	blob, err := hex.AppendDecode(l.blob, []byte(digits))
	switch {
	case errors.Is(err, hex.ErrLength):
		return fmt.Errorf("%d hex digits are not whole bytes", len(digits))
	case n == 0 && err == nil:
		return fmt.Errorf("%q is not a hash in hex", line)
	case err != nil:
		return fmt.Errorf("%.20q is not a hash in hex", line)
	case n > netproto.MaxHashLen:
		return fmt.Errorf("hash of %d bytes, at most %d are possible", n, netproto.MaxHashLen)
	case l.hashLen != 0 && n != l.hashLen:
		return fmt.Errorf("hash of %d bytes after one of %d; all must be of one length", n, l.hashLen)
	}
	l.blob, l.hashLen = blob, n
	return nil
}
