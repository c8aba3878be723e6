// Command publish stands for an engine in tests of a router: it publishes KV events as vLLM does, with a replay socket. It
// is for the demo and for tests in other modules, too.
package main

import (
	"bufio"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
)

const usage = `Usage: publish [flags]

Publishes KV events as vLLM does. It prints the endpoints of its events and of
its replays, and ends with its input. Each line that it reads is a batch:

  HEX…        blocks are stored, by their hashes; without token ids, answers
              about the engine stay unchecked
  tokens ID…  the whole blocks of a prompt are stored, hashed as vLLM does
  remove HEX… blocks are removed
  clear       all blocks are removed

`

// engine is what the flags say.
type engine struct {
	*eventstest.Publisher
	blockSize int
	hasher    *blockhash.VLLM
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1)
	}
}

// run publishes what in says until its end.
func run(args []string, in io.Reader, out io.Writer) (err error) {
	flags := flag.NewFlagSet("publish", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	listen := flags.String("events", "127.0.0.1:0", "`address` of the events; port 0: any")
	replay := flags.String("replay", "127.0.0.1:0", "`address` of the replays")
	e := engine{}
	flags.IntVar(&e.blockSize, "block-size", 16, "`tokens` of a block")
	release := flags.String("vllm", "", "`release` of vLLM whose hashes tokens get (default: the newest)")
	_ = flags.Parse(args) // it exits
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag; see publish -h", flags.Arg(0))
	}
	if e.hasher, err = blockhash.NewVLLM(blockhash.VLLMConfig{Release: *release, BlockSize: e.blockSize}); err != nil {
		return err
	}
	if e.Publisher, err = eventstest.NewAt(*listen, *replay); err != nil {
		return err
	}
	defer e.Close()
	fmt.Fprintln(out, e.Endpoint, e.Replay)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		event, err := e.event(strings.Fields(lines.Text()))
		if err != nil {
			return err
		}
		e.Publish(false, event)
	}
	return lines.Err()
}

// event returns the event of a line.
func (e *engine) event(words []string) (map[string]any, error) {
	verb := ""
	if len(words) > 0 {
		verb = words[0]
	}
	switch verb {
	case "clear":
		return eventstest.Cleared(), nil
	case "remove":
		hashes, err := parseHashes(words[1:])
		return eventstest.Removed(hashes...), err
	case "tokens":
		return e.storedTokens(words[1:])
	}
	hashes, err := parseHashes(words)
	stored := eventstest.Stored(nil, hashes...)
	stored["block_size"] = e.blockSize
	return stored, err
}

// storedTokens returns the event that stores the whole blocks of a prompt.
func (e *engine) storedTokens(words []string) (map[string]any, error) {
	ids := make([]int64, 0, len(words))
	for _, word := range words {
		id, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no token id", word)
		}
		ids = append(ids, id)
	}
	ids = ids[:len(ids)/e.blockSize*e.blockSize]
	joined, err := e.hasher.AppendHashes(nil, ids, nil)
	if err != nil {
		return nil, err
	}
	var hashes [][]byte
	for _, hash := range coordinator.NewHashes(joined, e.hasher.HashLen()).All() {
		hashes = append(hashes, hash)
	}
	stored := eventstest.Stored(nil, hashes...)
	tokens := make([]any, len(ids))
	for i, id := range ids {
		tokens[i] = id
	}
	stored["block_size"], stored["token_ids"] = e.blockSize, tokens
	return stored, nil
}

// parseHashes reads hashes in hex.
func parseHashes(words []string) (hashes [][]byte, err error) {
	for _, word := range words {
		hash, err := hex.DecodeString(word)
		if err != nil {
			return nil, fmt.Errorf("%q is no hash in hex; see publish -h", word)
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}
