package examples

import (
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/hitline/hitline/internal/eventstest"
)

// serverConfig is that of the server of a sandbox. Its arguments are the pool, and where an engine publishes and
// replays.
const serverConfig = `
listen: [tcp://127.0.0.1:0]
pool: %s
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

// A poolRule has an example ask a server with a pool that has what the example names.
type poolRule struct {
	text *regexp.Regexp
	pool string
}

// pools are tried in turn.
var pools = []poolRule{
	{regexp.MustCompile(`--tp-rank`), `{vllm: "0.33.0", tp_size: 8, num_kv_head: 8}`},
	{regexp.MustCompile(`--block-size 16`), `{vllm: "0.33.0"}`},
	{regexp.MustCompile(`hitbench (replay|run --connect)`), `{hash_block_size: 32}`}, // without a release: the pool that needs no flags
	{regexp.MustCompile(``), `{vllm: "0.33.0"}`},
}

// defaultConfig is hitline.yaml where a page shows none.
const defaultConfig = `
pool: {vllm: "0.33.0", hash_block_size: 16}
metrics: 127.0.0.1:9557
`

// replaceAddresses has the addresses of the pages and of help stand for those of the sandbox.
func (s *sandbox) replaceAddresses(engines [2]*eventstest.Publisher, server, other, metrics, fleet string) {
	s.addresses = strings.NewReplacer(
		"127.0.0.1:7557", server,
		"10.0.0.1:7557", server,
		"127.0.0.1:7559", other,
		"127.0.0.1:9557", metrics,
		"127.0.0.1:8557", fleet,
		"tcp://*:5557", "tcp://"+other,
		"tcp://127.0.0.1:5557", engines[0].Endpoint,
		"tcp://127.0.0.1:5558", engines[0].Replay,
		"tcp://10.0.0.5:5557", engines[0].Endpoint,
		"tcp://10.0.0.5:5558", engines[0].Replay,
		"tcp://10.0.0.10:5557", engines[0].Endpoint,
		"tcp://10.0.0.10:5558", engines[0].Replay,
		"tcp://10.0.0.11:5557", engines[1].Endpoint,
		"tcp://10.0.0.11:5558", engines[1].Replay,
		"tcp://10.0.0.12:5557", engines[1].Endpoint,
		"tcp://10.0.0.12:5558", engines[1].Replay,
		"backend: {mooncake: {masters: [10.0.0.5:50051]}} ", "#", // left out, as that page says
	)
}

// scripted are the pages that a target of make runs whole, because they take more than a sandbox has. Here their
// commands need only exist.
var scripted = map[string]string{"docs/tutorial.md": "tutorial"}

// withoutExamples are the commands whose help needs no example.
var withoutExamples = map[string]bool{"help": true, "completion": true}

// reports are what examples of hitbench picture draw: by name, which of its own tests.
var reports = map[string]string{
	"run.json": "run-one.json", "old.json": "steps.json", "new.json": "steps.json",
}

// tools are the programs, beside ours, that examples may use, as what they do stays in the sandbox: whether a machine
// may lack them.
var tools = map[string]bool{
	"curl": true, "echo": false, "jq": true, "kill": false, "printf": false, "seq": false, "sleep": false, "source": false, "umask": false,
}

// spanNames are the programs that a command line in back quotes begins with. Others are words.
var spanNames = regexp.MustCompile(`\b(?:hitline|hitbench) |^(?:make|go|curl|pip|vllm|docker) `)

// notCommand matches a code span that begins like a command and is a line of a log.
var notCommand = regexp.MustCompile(`^hitline at `)

// foreignFlags are the flags of other programs that the pages name.
var foreignFlags = map[string]bool{
	"--prefix-caching-hash-algo": true, "--kv-events-config": true, // vLLM
	"--page-size":       true, // SGLang
	"--force-reinstall": true, // pip
	"--stop-timeout":    true, // docker
	// Mooncake
	"--rpc_port": true, "--rpc_address": true, "--default_kv_lease_ttl": true, "--metrics_port": true, "--metrics_host": true, "--rpc_conn_timeout_seconds": true, "--client_ttl": true, "--rpc_enable_tcp_no_delay": true,
}

// A rule changes how a simple command runs, or says why it does not.
type rule struct {
	command *regexp.Regexp // what it is for
	flags   string         // to append: a later flag counts
	replace []string       // what stands in it, and what is taken instead, in turn
	reason  string         // why it is not run
	used    atomic.Bool
}

// rules are all of those that apply: to simple commands, each of them in turn. Where one is not run its whole command
// line is not.
var rules = []*rule{
	// What a page leaves to the reader.
	{command: regexp.MustCompile(`ENDPOINT|ADDRESS|NAME`), replace: []string{
		"ENDPOINT", "tcp://127.0.0.1:5557", "http://ADDRESS", "http://127.0.0.1:9557", "ADDRESS", "tcp://127.0.0.1:7557", "NAME", "engine-1",
	}},
	{command: regexp.MustCompile(`^hitline lookup --explain$`), flags: "--tokens 64 --hashes-file hashes"},
	{command: regexp.MustCompile(`^hitline snapshot .* FILE`), replace: []string{"FILE", "index.snapshot"}},
	{command: regexp.MustCompile(`^hitline serve .* FILE`), replace: []string{"FILE", "hitline.yaml"}},
	{command: regexp.MustCompile(`^hitline token .* FILE`), replace: []string{"FILE", "engines.token"}},
	{command: regexp.MustCompile(`^hitline snapshot`), replace: []string{"/var/lib/hitline/", ""}},

	{command: regexp.MustCompile(`^hitline serve .*/etc/hitline/`), replace: []string{"/etc/hitline/", ""}},

	{command: regexp.MustCompile(`^hitline init$`), replace: []string{"hitline", "rm hitline.yaml; hitline"}}, // it overwrites nothing

	// Commands that would go on.
	{command: regexp.MustCompile(`^hitline events`), flags: "-n 2 --timeout 30s"},

	{command: regexp.MustCompile(`^curl .*/query`), replace: []string{"3, …", "3"}},

	// Measurements, with what a page leaves to the reader, made short.
	{command: regexp.MustCompile(`^hitbench run`), flags: "-d 50ms --warmup 10ms --entries 2000 --timeout 60s"},
	{command: regexp.MustCompile(`^hitbench run .*--sweep`), flags: "-c 1,2 --rounds 1"},
	{command: regexp.MustCompile(`^hitbench floor`), flags: "-d 10ms --rounds 1 --entries 1000 --rotate 1 --timeout 60s"},
	{command: regexp.MustCompile(`^hitbench .*\bN$`), replace: []string{" N", " 64"}},
	{command: regexp.MustCompile(`^hitbench .*\bPATH`), replace: []string{"PATH", "python3"}},
	{command: regexp.MustCompile(`^hitbench .*\bFILE`), replace: []string{"FILE", "conversation_trace.jsonl"}},
	{command: regexp.MustCompile(`^hitbench replay .*--speed`), flags: "--speed 0"},
	{command: regexp.MustCompile(`^hitbench compare`), flags: "-d 10ms --rounds 1"},
	{command: regexp.MustCompile(`^hitbench compare(?: --(?:hashes|rounds|json|python|only|ways|hit-share)\b.*)?$`), flags: "--only floor --rotate 1 --entries 1000 --timeout 60s"},
	{command: regexp.MustCompile(`^hitbench compare(?: --(?:rounds|json|python|only|ways|hit-share)(?: [^ -]\S*)?)*$`), flags: "--hashes 64"}, // another --hashes would add to it
	{command: regexp.MustCompile(`^hitbench compare .*--holders`), flags: "--llmd none --entries 20000 --hashes 512"},

	// Not for a test on an ordinary machine.
	{command: regexp.MustCompile(`^make `), reason: "the targets build, test, or measure for minutes; they are looked up in the Makefile"},
	{command: regexp.MustCompile(`^go (?:test|run) `), reason: "benchmarks and scripts take minutes; they are looked up, and flags of scripts are parsed"},
	{command: regexp.MustCompile(`^go (?:doc|list|tool) `), reason: "commands of Go itself"},
	{command: regexp.MustCompile(`^vllm serve `), reason: "it takes vLLM"},
	{command: regexp.MustCompile(`^pip install `), reason: "it would change the Python of this machine"},
	{command: regexp.MustCompile(`^(?:helm|kubectl) `), reason: "it takes a cluster of Kubernetes"},
	{command: regexp.MustCompile(`^(?:docker|gh) `), reason: "it takes an image that is published"},
	{command: regexp.MustCompile(`^git (?:tag|push) `), reason: "it would publish a release"},
	{command: regexp.MustCompile(`^(?:curl -LO|sha256sum|tar|hitline_\S+/hitline) `), reason: "it takes files of a release"},
	{command: regexp.MustCompile(`^cp bin/hitline `), reason: "it would change the Python of this machine"},
	{command: regexp.MustCompile(`^python publisher\.py`), reason: "it takes pyzmq and msgpack; docs/events.md has the program"},
	{command: regexp.MustCompile(`^hitline serve --backend mooncake`), reason: "it takes a Mooncake master"},
	{command: regexp.MustCompile(`^hitbench compare .*--vllm`), reason: "it takes vLLM's modules from PyPI, and a Mooncake master"},
}
