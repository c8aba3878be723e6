package examples

import (
	"regexp"
	"strings"

	"github.com/hitline/hitline/internal/eventstest"
)

// serverConfig is that of the server of a sandbox. Its arguments are where an engine publishes, and replays.
const serverConfig = `
listen: [tcp://127.0.0.1:0]
pool: {vllm: "0.33.0"}
accept_pools: true
pools: {engine-1: {vllm: "0.33.0", hash_len: 32}}
metrics: 127.0.0.1:0
pprof: true
events: {register: ["tcp://127.0.0.0/8:1-65535"]}
fleet:
  listen: 127.0.0.1:0
  register: ["tcp://127.0.0.0/8:1-65535"]
  models: [{name: llama, hash: {engine: vllm}}]
  sources: [{instance: engine-0, connect: %q, replay: %q}]
log: {format: json}
`

// defaultConfig is hitline.yaml where a page shows none.
const defaultConfig = `
pool: {vllm: "0.33.0", hash_block_size: 16}
metrics: 127.0.0.1:9557
`

// replaceAddresses has the addresses of the pages and of help stand for those of the sandbox.
func (s *sandbox) replaceAddresses(engine *eventstest.Publisher, server, other, metrics, fleet string) {
	s.addresses = strings.NewReplacer(
		"127.0.0.1:7557", server,
		"10.0.0.1:7557", server,
		"127.0.0.1:7559", other,
		"127.0.0.1:9557", metrics,
		"127.0.0.1:8557", fleet,
		"tcp://127.0.0.1:5557", engine.Endpoint,
		"tcp://127.0.0.1:5558", engine.Replay,
		"tcp://10.0.0.5:5557", engine.Endpoint,
		"tcp://10.0.0.5:5558", engine.Replay,
		"tcp://10.0.0.10:5557", engine.Endpoint,
		"tcp://10.0.0.10:5558", engine.Replay,
		"tcp://10.0.0.11:5557", engine.Endpoint,
		"tcp://10.0.0.11:5558", engine.Replay,
		"tcp://10.0.0.12:5557", engine.Endpoint,
		"tcp://10.0.0.12:5558", engine.Replay,
		"backend: {mooncake: {masters: [10.0.0.5:50051]}} ", "#", // left out, as that page says
	)
}

// withoutExamples are the commands whose help needs no example.
var withoutExamples = map[string]bool{"help": true, "completion": true}

// tools are the programs, beside ours, that examples may use: what they do stays in the sandbox.
var tools = map[string]bool{
	"curl": true, "echo": true, "jq": true, "kill": true, "printf": true, "seq": true, "sleep": true, "umask": true,
}

// A rule changes how a simple command runs, or says why it does not.
type rule struct {
	command *regexp.Regexp // what it is for
	flags   string         // to append: a later flag counts
	replace []string       // what stands in it, and what is taken instead, in turn
	reason  string         // why it is not run
	used    bool
}

// rules are all of those that apply: to simple commands, each of them in turn. Where one is not run its whole command
// line is not.
var rules = []*rule{
	// What a page leaves to the reader.
	{command: regexp.MustCompile(`ENDPOINT|ADDRESS|NAME`), replace: []string{
		"ENDPOINT", "tcp://127.0.0.1:5557", "http://ADDRESS", "http://127.0.0.1:9557", "ADDRESS", "tcp://127.0.0.1:7557", "NAME", "engine-1",
	}},

	// Commands that would go on.
	{command: regexp.MustCompile(`^hitline events`), flags: "--count 2 --timeout 30s"},
	{command: regexp.MustCompile(`^hitline stat .*--watch`), flags: "--count 2 --watch 10ms"},
	{command: regexp.MustCompile(`^hitline ping .*--count`), flags: "--count 2 --interval 1ms"},

	// Not for a test on an ordinary machine.
	{command: regexp.MustCompile(`^make `), reason: "the targets build, test, or measure for minutes; they are looked up in the Makefile"},
	{command: regexp.MustCompile(`^go (?:test|run) `), reason: "benchmarks and scripts take minutes; they are looked up, and flags of scripts are parsed"},
	{command: regexp.MustCompile(`^go (?:doc|list|tool) `), reason: "commands of Go itself"},
	{command: regexp.MustCompile(`^vllm serve `), reason: "it takes vLLM"},
	{command: regexp.MustCompile(`^pip install `), reason: "it would change the Python of this machine"},
	{command: regexp.MustCompile(`^cp bin/hitline `), reason: "it would change the Python of this machine"},
	{command: regexp.MustCompile(`^python publisher\.py`), reason: "it takes pyzmq and msgpack; docs/events.md has the program"},
	{command: regexp.MustCompile(`^hitline serve --backend mooncake`), reason: "it takes a Mooncake master"},
	{command: regexp.MustCompile(`^hitbench compare .*--vllm`), reason: "it takes vLLM's modules from PyPI, and a Mooncake master"},
}
