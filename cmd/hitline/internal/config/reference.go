package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/fleet"
)

// section is a part of the reference in docs/configuration.md: the fields below a path.
type section struct {
	path     string // [] is any entry of a list
	about    string // before the table
	settings []setting
}

// setting is what the reference says of a field, and what a value must be.
type setting struct {
	name    string
	allowed allowed
	unset   string // what is in effect without it; "": what Default has
	what    string
}

// allowed are bounds of a number, a size or a time, or words. The zero value is no restriction.
type allowed struct {
	min, max int64 // max 0: no bound
	orZero   bool
	words    []string
}

var anything allowed

func from[T ~int | ~int64](min T) allowed { return allowed{min: int64(min)} }

func orFrom[T ~int | ~int64](min T) allowed { return allowed{min: int64(min), orZero: true} }

func between[T ~int | ~int64](min, max T) allowed { return allowed{min: int64(min), max: int64(max)} }

func oneOf(words ...string) allowed { return allowed{words: words} }

const (
	// minTimeout is the minimum of a time that may not be 0, which would mean to wait for ever, or not at all.
	minTimeout = time.Millisecond
	// MinMemory is the minimum of limits.max_memory, in bytes: one client has as much in flight as it may.
	MinMemory = 24 << 20
)

// reference has every field. A test writes docs/configuration.md from it.
var reference = []section{
	{"", "", []setting{
		{"listen", anything, "`[tcp://127.0.0.1:7557]`", "addresses for clients, [below](#listen)"},
		{"ipc_mode", anything, "", "permissions of the files of `ipc:///` sockets, in octal up to `\"0666\"`"},
		{"loops", between(0, 256), "", "event loops; 0: one for each CPU that the container may use"},
		{"pool", anything, "", "the engine whose blocks are looked up, [below](#pool)"},
		{"pools", anything, "none", "pools of other engines by name, each with the fields of `pool`"},
		{"accept_pools", anything, "over a store without `pool` and `pools`", "whether clients may describe pools"},
		{"max_pools", between(1, 4096), "", "pools that clients describe; over `memory` each has an equal part of `max_bytes`"},
		{"backend", anything, "`memory`", "where blocks are looked up, [below](#backend)"},
		{"router", anything, "", "which engine holds what, [below](#router)"},
		{"limits", anything, "", "what one client can cost, [below](#limits)"},
		{"drain_delay", anything, "", "how long SIGTERM changes nothing but `/readyz` and `ping`, which say at once that the server will stop"},
		{"drain_timeout", anything, "", "how long requests are still answered after that"},
		{"metrics", anything, "", "`host:port` of the [page](tokens.md#the-page), `/metrics`, `/status`, `/healthz` and `/readyz`; empty: not served"},
		{"pprof", anything, "", "Go's profiles there, for everybody who can connect"},
		{"http_hosts", anything, "", "names by which clients reach `metrics` and `router.listen`, see [access](access.md)"},
		{"log", anything, "", "the log on standard error, [below](#log)"},
	}},
	{"listen[]", "An entry is an address, or these fields. [Access](access.md) explains who may do what.", []setting{
		{"address", anything, "required", "`tcp://host:port`, `host:port`, `tls://host:port` or `ipc:///path`. `[::]` is IPv4 too, unless the port is listed for that"},
		{"allow", anything, "[by address](access.md#the-defaults)", "`all`, or a list of permissions of peers without a token or certificate"},
		{"tokens", anything, "none", "path of [the tokens file](#the-tokens-file)"},
		{"tls", anything, "none", "the files of a `tls://` address"},
	}},
	{"listen[].tls", "Paths of PEM files.", []setting{
		{"cert", anything, "required", "the server's certificate, then those up to its authority"},
		{"key", anything, "required", "its private key"},
		{"client_ca", anything, "none", "authorities; every client then needs a certificate of one"},
	}},
	{"tokens[]", "It has a list `tokens`, whose entries have these fields.", []setting{
		{"name", anything, "required", "name in logs and replies"},
		{"token", anything, "", "the token, 16 to 255 bytes. An entry has this, `sha256` or `certificate`"},
		{"sha256", anything, "", "SHA-256 of the token, in 64 hexadecimal digits"},
		{"certificate", anything, "", "a name in a client's certificate"},
		{"allow", anything, "required", "`all`, or a list of [permissions](access.md#the-defaults)"},
		{"pools", anything, "all", "pools that its peers may use; `\"\"` is the server's own"},
		{"expires", anything, "never", "such as `2027-01-01T00:00:00Z`"},
	}},
	{"pool", "Sizes are in tokens. A field that the release in `vllm` lacks is refused.", []setting{
		{"vllm", anything, "none", "the engine's release, such as `\"" + coordinator.NewestRelease() + "\"`. Without it: the rules of 0.24.0, and replies of four bytes"},
		{"model_name", anything, "`\"\"`", "the model as vLLM was given it; a store's keys begin with its last path component"},
		{"cache_prefix", anything, "`\"\"`", "`cache_prefix` of the connector: keys begin with it and `@`"},
		{"layout", anything, "vLLM's", "whose keys the store has: `lmdeploy` for LMDeploy's"},
		{"hash_block_size", anything, "", "tokens of one hash"},
		{"scheduler_block_size", anything, "least common multiple of all block sizes", "hits are multiples of it"},
		{"use_eagle", anything, "`false`", "groups drop the last block of a hit, for EAGLE; without `is_eagle_group` all do"},
		{"retention_interval", anything, "`null`", "blocks that the engine stores: before multiples of it; 0: for a replay only"},
		{"tp_size", anything, "", "tensor-parallel ranks"},
		{"pp_size", anything, "", "pipeline-parallel ranks"},
		{"pcp_size", anything, "", "prefill-context-parallel ranks (0.25.0 on)"},
		{"dcp_size", anything, "", "decode-context-parallel ranks (0.25.0 on)"},
		{"pcp_rank", anything, "0", "that of the worker that looks up (to 0.24.0)"},
		{"dcp_rank", anything, "0", "likewise"},
		{"num_kv_head", anything, "`tp_size`", "KV heads of the model, 1 for MLA: which ranks hold blocks of their own"},
		{"cache_hit_alignment_tokens", anything, "none", "the engine's value of this name (0.32.0 on): hits may end inside a block"},
		{"hash_len", anything, "unknown", "bytes of a hash: 32 for SHA-256, 16 for xxHash; others are refused"},
		{"capacity_only", anything, "`false`", "the engine's workers never look up: every answer is 0 (0.27.0 on)"},
		{"store_tp_size", anything, "none", "the connector's option of this name (0.30.0 on)"},
		{"enable_store_tp_lcm", anything, "`false`", "likewise; it wins over `store_tp_size`"},
		{"prefill_tp_sizes", anything, "none", "likewise, with `enable_store_tp_lcm`"},
		{"enable_cross_layers_blocks", anything, "`false`", "likewise: blocks cannot be shared between sizes"},
		{"kv_cache_layout", anything, "`LBHNC`", "the engine's KV cache layout (0.30.0 on)"},
		{"groups", anything, "one of `full_attention`", "KV cache groups in the engine's order"},
	}},
	{"pool.groups[]", "", []setting{
		{"kind", anything, "`full_attention`", "how its layers attend, [below](#kinds)"},
		{"block_size", anything, "required", "tokens of a block, a multiple of `hash_block_size`"},
		{"sliding_window", anything, "none", "the window, which window kinds need and full kinds may have"},
		{"attention_chunk_size", anything, "none", "the chunk, which `chunked_local_attention` needs"},
		{"mamba_cache_mode", anything, "`none`", "`none`, `align` or `all`, of `mamba`"},
		{"is_eagle_group", anything, "`false`", "a group of the draft model, which drops its last block"},
		{"variant", anything, "0", "a number of your own for specs that differ in what no field shows"},
		{"uniform", anything, "`false`", "the spec is wrapped as a uniform type (0.30.0 on)"},
		{"extra_retained_tokens", anything, "0", "tokens kept with a window (0.28.0 on)"},
		{"rswa_window", anything, "none", "the window of `rswa` (0.25.0 on)"},
		{"bounded_replay", anything, "`false`", "a `sliding_window_mla` group is scratch memory (0.30.0 on)"},
		{"enable_kv_transfer", anything, "`true`", "whether the group is kept in the store (0.29.0 on)"},
	}},
	{"backend", "It has one of these. The last source that names one chooses it; its name alone, as `redis:`, is enough.", []setting{
		{"memory", anything, "", "an index in this process, which clients fill with `store`"},
		{"redis", anything, "", "a Redis or Valkey, or a cluster, see [stores](stores.md)"},
		{"mooncake", anything, "", "a Mooncake store, which is only read, see [stores](stores.md)"},
	}},
	{"backend.memory", "", []setting{
		{"max_bytes", anything, "", "memory of the index, at least 2MiB; a block takes 46 bytes or more"},
		{"max_entries", anything, "", "distinct hashes; 0: what `max_bytes` allows"},
	}},
	{"backend.redis", "It needs `pool.model_name` or `pool.cache_prefix`.", []setting{
		{"url", anything, "required", "`redis://[user:password@]host[:port][/db]`; [others](stores.md#redis-and-valkey)"},
		{"ttl", anything, "", "how long a block stays after its latest store; 0: until it is evicted"},
		{"pool_size", between(1, 65536), "", "connections to each server"},
		{"timeout", from(minTimeout), "", "of a lookup, which then hits 0"},
		{"blocks", orFrom[int64](1), "", "blocks of `hash_block_size` that the store has room for, for [the curve](tokens.md#how-large-the-pool-is); 0: what it says"},
	}},
	{"backend.mooncake", "", []setting{
		{"masters", anything, "required", "RPC addresses of all masters, `host:port`; or `MOONCAKE_CONFIG_PATH` names Mooncake's own file"},
		{"admin", anything, "", "their admin addresses, by which `doctor` lists keys"},
		{"tenant", anything, "", "owner of the keys, `tenant_id` of vLLM"},
		{"conns", between(1, 65536), "", "connections to the leader"},
		{"allow_reset", anything, "", "a client's `reset` empties the store for all engines"},
		{"lease", orFrom(minTimeout), "", "how long a found block is safe; 0: what the leader states"},
		{"timeout", from(minTimeout), "", "of a lookup, which then hits 0"},
		{"remember", orFrom(minTimeout), "", "how long a found block is not asked for again; `auto`, the most: half of the lease"},
		{"groups", anything, "", "`enable_group_semantics` of vLLM's connector"},
		{"blocks", orFrom[int64](1), "", "blocks of `hash_block_size` that the store has room for, for [the curve](tokens.md#how-large-the-pool-is); 0: not known"},
		{"renew", oneOf("auto", "always", "never"), "", "lease blocks before a lookup's start anew: `auto` for engines that only load"},
	}},
	{"router", "[For router authors](router.md) says what it is for.", []setting{
		{"listen", anything, "none", "address of HTTP for routers, or the fields of [`listen[]`](#listen)"},
		{"models", anything, "none", "models, [below](#routermodels)"},
		{"sources", anything, "none", "engines that publish events, [below](#routersources)"},
		{"register", anything, "none", "endpoints that `POST /register` may name, such as `tcp://10.0.0.0/8:5557-5564`"},
		{"max_models", between(1, 1024), "", "models, those of registered sources included"},
		{"max_holders", between(1, fleet.MaxHolders), "", "ranks of engines of one model"},
		{"max_bytes", between[Size](16<<20, fleet.MaxBytes), "", "memory for one model"},
		{"max_blocks", between(1, math.MaxInt32), "", "blocks of one rank"},
		{"predict_ttl", between(Duration(100*time.Millisecond), Duration(24*time.Hour)), "", "how long a predicted block counts"},
		{"max_payload", between[Size](4<<10, 1<<30), "", "bytes of one batch of events"},
		{"peers", anything, "none", "`router.listen` of other servers as URLs, whose state this one starts from"},
		{"peer_timeout", between(Duration(minTimeout), Duration(time.Hour)), "", "for one peer"},
		{"peer_token_file", anything, "none", "path of the token that peers want"},
	}},
	{"router.models[]", "An entry is a name, or these fields.", []setting{
		{"name", anything, "required", "name in queries and sources"},
		{"tenant_id", anything, "`default`", "whose model it is"},
		{"block_size", anything, "its pool's", "tokens of one hash: `hash_block_size`, or `page_size` of SGLang"},
		{"pool", anything, "`pool`", "name of the pool that says what can be loaded; `\"-\"`: none"},
		{"hicache_layout", anything, "none", "URL at which SGLang tells its store's keys, or a list of them, in place of `pool`"},
		{"hash", anything, "none", "how token ids are hashed; without it queries have hashes"},
		{"groups", anything, "as events tell", "as [`pool.groups`](#poolgroups)"},
		{"release", anything, "its pool's", "release of vLLM; without a pool the newest"},
		{"max_bytes", between[Size](16<<20, fleet.MaxBytes), "`router`'s", "as of `router`"},
		{"max_blocks", between(1, math.MaxInt32), "`router`'s", "as of `router`"},
		{"predict_ttl", between(Duration(100*time.Millisecond), Duration(24*time.Hour)), "`router`'s", "as of `router`"},
	}},
	{"router.models[].hash", "", []setting{
		{"type", anything, "`vllm`", "`vllm` or `sglang`"},
		{"release", anything, "the model's", "release of vLLM"},
		{"algorithm", anything, "`sha256`", "`prefix_caching_hash_algo`: `sha256`, `sha256_cbor`, `xxhash` or `xxhash_cbor`"},
		{"seed", anything, "none", "`PYTHONHASHSEED` of the engines, if it is set, as it must be up to 0.28 and for `xxhash`"},
		{"lookahead", anything, "0", "tokens after a block that its hash covers (0.33.0 on)"},
		{"bigrams", anything, "`false`", "SGLang hashes pairs of tokens, for EAGLE"},
		{"dynamo", anything, "`false`", "SGLang's events have the format `dynamo`"},
	}},
	{"router.sources[]", "[`POST /register`](router.md#http) has the same fields.", []setting{
		{"name", anything, "the endpoint", "name in logs and metrics"},
		{"model", anything, "the only one", "name of its model"},
		{"tenant_id", anything, "`default`", "tenant of its model"},
		{"instance_id", anything, "required", "the engine in answers"},
		{"dp_rank", anything, "0", "its data-parallel rank"},
		{"type", anything, "the model's", "`vllm` or `sglang`"},
		{"block_size", anything, "the model's", "tokens of one hash"},
		{"endpoint", anything, "required", "where it publishes: `tcp://host:port` or `ipc:///path`"},
		{"ranks", anything, "1", "ranks from `dp_rank` on, each at the next port of its endpoints"},
		{"bind", anything, "`false`", "bind `endpoint`, for an engine that connects"},
		{"replay_endpoint", anything, "none", "its replay socket; without it each lost event empties the rank"},
		{"kv_endpoint", anything, "none", "`tcp://host:port` where other engines fetch its blocks"},
		{"topic", anything, "all", "prefix of the topics that are subscribed to"},
		{"exact_copies", anything, "`false`", "count copies of a block, if no request asks for full reports"},
		{"one_removal", anything, "`false`", "the engine says once that all copies of a block are gone"},
		{"timeout", anything, "`10s`", "of a silent connection"},
	}},
	{"limits", "Beyond these, except where it says otherwise, the connection is closed.", []setting{
		{"max_message", from(1), "", "bytes of one request"},
		{"max_hashes", from(1), "", "hashes of one lookup, which is refused beyond it"},
		{"max_connections", from(1), "", "open connections; lowered to what open files allow"},
		{"max_in_flight", from(1), "", "unanswered requests of one connection; further ones are refused as `busy`"},
		{"max_memory", orFrom(Size(MinMemory)), "", "bytes that all clients make the server hold; 0: by the machine"},
		{"max_account", orFrom(Size(64 << 10)), "", "bytes for the account of where a pool's tokens went; 0: none is kept"},
		{"write_timeout", from(minTimeout), "", "in which a client reads none of its replies"},
		{"handshake_timeout", from(minTimeout), "", "from the first to the last byte of a handshake"},
		{"message_timeout", from(minTimeout), "", "from the first to the last byte of a request"},
		{"idle_timeout", anything, "", "between two requests; 0: never"},
	}},
	{"log", "", []setting{
		{"level", oneOf("debug", "info", "warn", "error"), "", "least severity"},
		{"format", oneOf("text", "json"), "", "form of a line"},
	}},
}

// allowedAt is what the reference allows, by path.
var allowedAt = func() map[string]allowed {
	byPath := map[string]allowed{}
	for _, section := range reference {
		for _, s := range section.settings {
			byPath[join(section.path, s.name)] = s.allowed
		}
	}
	return byPath
}()

// checkSettings refuses the first value below a struct at path that the reference does not allow at row. Of backends
// only the one in effect counts.
func (c *Config) checkSettings(parent reflect.Value, path, row string) error {
	for at, value := range fieldsBelow(parent, path) {
		if below(at, "backend") && !below(at, "backend."+c.Backend.chosen) {
			continue
		}
		if err := allowedAt[row+at[len(path):]].check(value); err != nil {
			return c.wrong(at, "%v", err)
		}
	}
	return nil
}

// check returns what is wrong with a value.
func (a allowed) check(value reflect.Value) error {
	if a.words != nil {
		if !slices.Contains(a.words, value.String()) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(a.words, ", "))
		}
		return nil
	}
	if a.min == 0 && a.max == 0 {
		return nil
	}
	text := func(n int64) string { return fmt.Sprint(reflect.ValueOf(n).Convert(value.Type())) }
	switch n := value.Int(); {
	case a.orZero && n == 0, value.Type() == reflect.TypeFor[Remember]() && n == int64(RememberAuto):
	case n < a.min && a.orZero:
		return fmt.Errorf("%s is too small, must be at least %s, or 0", text(n), text(a.min))
	case n < a.min:
		return fmt.Errorf("%s is too small, must be at least %s", text(n), text(a.min))
	case a.max > 0 && n > a.max:
		return fmt.Errorf("%s is too large, must be at most %s", text(n), text(a.max))
	}
	return nil
}
