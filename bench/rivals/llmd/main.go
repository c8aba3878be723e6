// Command llmd is the in-memory index of llm-d, and its scorer, to compare package fleet with
// (hitbench compare --holders). It reads commands from standard input, lines of JSON, and
// writes a line of JSON for each that has an answer, and one before all that says it is ready.
// bench/rivals/dynamo speaks the same.
//
// It is a module of its own, so that hitline does not depend on llm-d.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	holders := flag.Int("holders", 64, "holders that one block may have")
	flag.Parse()
	if *holders < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	log.SetLogger(logr.Discard()) // it complains otherwise
	s, err := newSubject(*holders)
	if err == nil {
		fmt.Fprintln(os.Stdout, readyLine)
		err = s.serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "llmd: %v\n", err)
		os.Exit(1)
	}
}

// readyLine is the first line of output, before commands are read.
const readyLine = `{"ready": true}`

// command is one line of input. One of its fields is set.
type command struct {
	Store   *storing `json:"store"`   // no answer
	Query   []uint64 `json:"query"`   // adds a query, numbered from 0; no answer
	Answer  *int     `json:"answer"`  // a query; answered by reply.Prefixes
	Measure *int     `json:"measure"` // a query; answered by reply.Ns
	Heap    bool     `json:"heap"`    // answered by reply.Heap
}

// storing is an event of an engine. Its parent, which the index does not need, is not read.
type storing struct {
	Holder string   `json:"holder"`
	Blocks []uint64 `json:"blocks"`
}

// reply is one line of output.
type reply struct {
	Prefixes map[string]int `json:"prefixes,omitempty"` // blocks, by holder
	Ns       int64          `json:"ns,omitempty"`       // that a query took
	Heap     uint64         `json:"heap,omitempty"`     // bytes in use after a garbage collection
	Version  string         `json:"version,omitempty"`  // of the index; comes with heap
}

// subject is llm-d's index with what it is asked. Not safe for concurrent use.
type subject struct {
	index   kvblock.Index
	scorer  kvcache.KVBlockScorer
	queries [][]kvblock.BlockHash
}

// newSubject returns an empty index in which a block may have so many holders. The index bounds
// them to 10 by default, and would forget the others.
func newSubject(holders int) (*subject, error) {
	cfg := kvblock.DefaultInMemoryIndexConfig()
	cfg.PodCacheSize = holders
	index, err := kvblock.NewInMemoryIndex(cfg)
	if err != nil {
		return nil, err
	}
	scorer, err := kvcache.NewKVBlockScorer(kvcache.DefaultKVBlockScorerConfig())
	return &subject{index: index, scorer: scorer}, err
}

// serve carries out commands until the end of the input.
func (s *subject) serve(in io.Reader, out io.Writer) error {
	commands, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c command
		if err := commands.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		r, err := s.run(c)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if err := replies.Encode(r); err != nil {
			return err
		}
	}
}

func (s *subject) run(c command) (*reply, error) {
	switch {
	case c.Store != nil:
		// As its events do: the engine's hash of a block, and the index's own, which is another
		// number there and costs the same.
		blocks := hashes(c.Store.Blocks)
		return nil, s.index.Add(context.Background(), blocks, blocks, []kvblock.PodEntry{{PodIdentifier: c.Store.Holder, DeviceTier: "gpu"}})
	case c.Query != nil:
		s.queries = append(s.queries, hashes(c.Query))
		return nil, nil
	case c.Answer != nil:
		return s.answer(*c.Answer)
	case c.Measure != nil:
		return s.measure(*c.Measure)
	case c.Heap:
		return &reply{Heap: heap(), Version: version()}, nil
	}
	return nil, errors.New("a command without a field")
}

func hashes(numbers []uint64) []kvblock.BlockHash {
	list := make([]kvblock.BlockHash, len(numbers))
	for i, n := range numbers {
		list[i] = kvblock.BlockHash(n)
	}
	return list
}

// ask asks a query as llm-d's own Indexer does. Of gpu blocks a score is their number.
func (s *subject) ask(query []kvblock.BlockHash) (map[string]float64, error) {
	held, err := s.index.Lookup(context.Background(), query, nil)
	if err != nil {
		return nil, err
	}
	return s.scorer.Score(context.Background(), query, held)
}

func (s *subject) answer(query int) (*reply, error) {
	if query < 0 || query >= len(s.queries) {
		return nil, fmt.Errorf("no query %d", query)
	}
	scores, err := s.ask(s.queries[query])
	if err != nil {
		return nil, err
	}
	r := &reply{Prefixes: map[string]int{}}
	for holder, score := range scores {
		r.Prefixes[holder] = int(score)
	}
	return r, nil
}

func (s *subject) measure(query int) (*reply, error) {
	if query < 0 || query >= len(s.queries) {
		return nil, fmt.Errorf("no query %d", query)
	}
	begin := time.Now()
	_, err := s.ask(s.queries[query])
	return &reply{Ns: time.Since(begin).Nanoseconds()}, err
}

// version returns that of the module whose index this is.
func version() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/llm-d/llm-d-kv-cache" {
			return module.Version
		}
	}
	return ""
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may only have finished what was under way
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
