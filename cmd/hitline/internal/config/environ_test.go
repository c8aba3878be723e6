package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
)

// leaf is a value that has no fields, and its path.
type leaf struct {
	path string
	dst  reflect.Value
}

// leaves walks a configuration by its tags, on its own rather than through the
// code under test.
func leaves(t *testing.T, parent reflect.Value, path string) []leaf {
	var all []leaf
	for i := range parent.NumField() {
		field := parent.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		require.NotEmpty(t, name, "%s.%s has no name", path, field.Name)
		if name = path + name; field.Type.Kind() == reflect.Struct {
			all = append(all, leaves(t, parent.Field(i), name+".")...)
		} else {
			all = append(all, leaf{name, parent.Field(i)})
		}
	}
	return all
}

// Every value of the configuration has a variable, named by the rule, that sets
// it and nothing else.
func TestEnvironSetsEveryLeaf(t *testing.T) {
	five := 5
	samples := map[reflect.Type]struct {
		text string
		want any
	}{
		reflect.TypeFor[int]():             {"5", 5},
		reflect.TypeFor[int64]():           {"5", int64(5)},
		reflect.TypeFor[bool]():            {"true", true},
		reflect.TypeFor[string]():          {"123 #x: [", "123 #x: ["},
		reflect.TypeFor[*int]():            {"5", &five},
		reflect.TypeFor[[]string]():        {"tcp://a:1, tcp://b:2", []string{"tcp://a:1", "tcp://b:2"}},
		reflect.TypeFor[[]Listener]():      {"tcp://a:1, tcp://b:2", Listeners("tcp://a:1", "tcp://b:2")},
		reflect.TypeFor[*Listener]():       {"tcp://a:1", &Listener{Address: "tcp://a:1"}},
		reflect.TypeFor[[]RouterModel]():   {"[a, {name: b, block_size: 5}]", []RouterModel{{Name: "a"}, {Name: "b", BlockSize: 5}}},
		reflect.TypeFor[[]router.Source](): {"[{instance_id: a, endpoint: \"tcp://a:1\"}]", []router.Source{{Engine: "a", Endpoint: "tcp://a:1"}}},
		reflect.TypeFor[Size]():            {"5KB", Size(5000)},
		reflect.TypeFor[Duration]():        {"5ms", Duration(5e6)},
		reflect.TypeFor[Mode]():            {"0660", Mode(0o660)},
		reflect.TypeFor[Level]():           {"error", Level("error")},
		reflect.TypeFor[Format]():          {"json", Format("json")},
		reflect.TypeFor[Layout]():          {"set", Layout("set")},
		reflect.TypeFor[Strategy]():        {"ask_all", Strategy("ask_all")},
		reflect.TypeFor[Renew]():           {"always", Renew("always")},
		reflect.TypeFor[Remember]():        {"5ms", Remember(5e6)},
		reflect.TypeFor[Verify]():          {"bytes", Verify("bytes")},
		reflect.TypeFor[[]int]():           {"[2, 4]", []int{2, 4}},
		reflect.TypeFor[*bool]():           {"true", new(true)},
		reflect.TypeFor[map[string]coordinator.Pool](): {
			"{a: {tp_size: 2}, b: {vllm: 0.33.0}}", map[string]coordinator.Pool{"a": {TPSize: 2}, "b": {VLLM: "0.33.0"}},
		},
		reflect.TypeFor[[]coordinator.Group](): {
			"[{kind: mamba, block_size: 16}, {kind: full_attention, block_size: 32}]",
			[]coordinator.Group{{Kind: coordinator.Mamba, BlockSize: 16}, {BlockSize: 32}},
		},
	}
	var probe Config
	all := leaves(t, reflect.ValueOf(&probe).Elem(), "")
	require.Len(t, all, 85, "a field came or went: is it documented?")
	for i := range all {
		t.Run(all[i].path, func(t *testing.T) {
			c := Default()
			c.origins = origins{}
			mine := leaves(t, reflect.ValueOf(&c).Elem(), "")
			sample, ok := samples[mine[i].dst.Type()]
			require.True(t, ok, "no sample for %s", mine[i].dst.Type())
			name := "HITLINE_" + strings.ToUpper(strings.ReplaceAll(mine[i].path, ".", "_"))
			require.NoError(t, c.readEnviron([]string{name + "=" + sample.text}))
			assert.Equal(t, sample.want, mine[i].dst.Interface())
			assert.Equal(t, name, strings.Split(c.origins.find(mine[i].path).String(), ":")[0])

			// And nothing else: undone, it is the default again.
			untouched := Default()
			mine[i].dst.Set(leaves(t, reflect.ValueOf(&untouched).Elem(), "")[i].dst)
			c.origins, c.Backend.chosen = nil, untouched.Backend.chosen
			assert.Equal(t, untouched, c)
		})
	}
}

func TestEnvironSections(t *testing.T) {
	c, err := Load(Source{
		File: write(t, "pool: {tp_size: 2, pp_size: 2, model_name: m}\nlimits: {max_frames: 7}\n"),
		Environ: []string{
			"HITLINE_POOL_TP_SIZE=8", // over the section's, whatever the order
			"HITLINE_POOL={tp_size: 4, pcp_size: 4}",
			"HITLINE_BACKEND={memory: {max_entries: 9}}",
			"HITLINE_LIMITS_MAX_FRAMES=9",
			"HITLINE_POOL_RETENTION_INTERVAL=null",
			"HITLINE_POOL_MODEL_NAME=",
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []int{8, 2, 4}, []int{c.Pool.TPSize, c.Pool.PPSize, c.Pool.PCPSize})
	assert.Empty(t, c.Pool.ModelName, "an empty variable is an empty name")
	assert.Equal(t, int64(9), c.Backend.Memory.MaxEntries)
	assert.Equal(t, Size(1<<30), c.Backend.Memory.MaxBytes)
	assert.Equal(t, 9, c.Limits.MaxFrames)
}

func TestEnvironErrors(t *testing.T) {
	for _, test := range []struct{ entry, want string }{
		{"HITLINE_LOOPS=two", `HITLINE_LOOPS: "two" is not a whole number in decimal`},
		{"HITLINE_LOOPS=", `HITLINE_LOOPS: "" is not a whole number in decimal`},
		{"HITLINE_LOOPS=1000", `HITLINE_LOOPS: loops: 1000 is too large, must be at most 256`},
		{"HITLINE_LISTEN=", `HITLINE_LISTEN: listen: no address; give one such as tcp://127.0.0.1:7557`},
		{"HITLINE_LISTEN=tcp://a:1,b", `HITLINE_LISTEN: listen[1]: "b": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{"HITLINE_POOL_USE_EAGLE=1", `HITLINE_POOL_USE_EAGLE: "1" is not true or false`},
		{"HITLINE_LIMITS_MAX_MESSAGE=1G", `HITLINE_LIMITS_MAX_MESSAGE: "1G" is not a number of bytes such as 67108864, 64MiB or 64MB (KiB, MiB, GiB, TiB; KB, MB, GB)`},
		{"HITLINE_DRAIN_TIMEOUT=1", `HITLINE_DRAIN_TIMEOUT: "1" is not a duration such as 100ms, 10s, 1m30s or 2h, or 0`},
		{"HITLINE_POOL_RETENTION_INTERVAL=", `HITLINE_POOL_RETENTION_INTERVAL: is empty; unset it for the default`},
		{"HITLINE_POOL_GROUPS=[{kind: mamba,\n blok: 1}]", `HITLINE_POOL_GROUPS:2:2: pool.groups[0].blok: unknown field; known are kind, block_size, sliding_window, attention_chunk_size, mamba_cache_mode, variant, uniform, is_eagle_group, extra_retained_tokens, rswa_window, bounded_replay, enable_kv_transfer`},
		{"HITLINE_POOL_GROUPS=16", `HITLINE_POOL_GROUPS:1:1: pool.groups: "16" where a list is expected`},
		{"HITLINE_POOL_GROUPS=[{kind: mamba, block_size: 24}]", `HITLINE_POOL_GROUPS:1:28: pool.groups[0].block_size: block_size 24 is not a multiple of hash_block_size 16`},
		{"HITLINE_POOL={tp: 1}", `HITLINE_POOL:1:2: pool.tp: unknown field; did you mean tp_size?`},
		{"HITLINE_LOG=debug", `HITLINE_LOG:1:1: log: "debug" where fields are expected: level, format`},
		{"HITLINE_METRICS=:9557", `HITLINE_METRICS: metrics: ":9557" has no host; for all interfaces write 0.0.0.0 or [::]`},

		{"HITLINE_POOL_TP_SISE=1", `HITLINE_POOL_TP_SISE: no such variable; did you mean HITLINE_POOL_TP_SIZE?`},
		{"HITLINE_LIMITS_MESSAGE=1", `HITLINE_LIMITS_MESSAGE: no such variable; did you mean HITLINE_LIMITS_MAX_MESSAGE?`},
		{"HITLINE_LOG_ZZZZZZZZZZZZZZZZZZZZ=1", `HITLINE_LOG_ZZZZZZZZZZZZZZZZZZZZ: no such variable`},
		{"HITLINE_LOG_NAME=x", `HITLINE_LOG_NAME: no such variable`},
		{"HITLINE_DEBUG=1", `HITLINE_DEBUG: no such variable`},
		{"HITLINE_LOOP=3", `HITLINE_LOOP: no such variable; did you mean HITLINE_LOOPS?`},
		{"HITLINE_ADDRESSX=tcp://a:1", `HITLINE_ADDRESSX: no such variable; did you mean HITLINE_ADDRESS?`},
		{"HITLINE_BENCH_ENTRIE=1", `HITLINE_BENCH_ENTRIE: no such variable`},
		{"HITLINE_ZZZZZZZZZZZZZZZZZZZZ=1", `HITLINE_ZZZZZZZZZZZZZZZZZZZZ: no such variable`},
		{"HITLINE_LOG_LEVELS=info", `HITLINE_LOG_LEVELS: no such variable; did you mean HITLINE_LOG_LEVEL?`},
		{"HITLINE_BACKEND_MEMORY_BYTES=1", `HITLINE_BACKEND_MEMORY_BYTES: no such variable; did you mean HITLINE_BACKEND_MEMORY_MAX_BYTES?`},
		{"HITLINE_BACKEND_REDIS_URI=redis://x", `HITLINE_BACKEND_REDIS_URI: no such variable; did you mean HITLINE_BACKEND_REDIS_URL?`},
		{"HITLINE_BACKEND_REDIS_TTL=1s", `HITLINE_BACKEND_REDIS_TTL: backend.redis.url: is missing; give the server's, such as redis://127.0.0.1:6379, here or in HITLINE_BACKEND_REDIS_URL`},
		{"HITLINE_BACKEND_MOONCAKE_MASTERS=", `HITLINE_BACKEND_MOONCAKE_MASTERS: backend.mooncake.masters: is missing; give the RPC addresses of the masters, such as [127.0.0.1:50051], here or with commas between them in HITLINE_BACKEND_MOONCAKE_MASTERS`},
		{"HITLINE_BACKEND={redis: {url: redis://x}, memory: {}}", `HITLINE_BACKEND:1:2: backend: both memory and redis; a process has one backend, remove the others`},
		{"HITLINE_BACKEND_ETCD_URL=x", `HITLINE_BACKEND_ETCD_URL: unknown backend "etcd"; use memory, redis or mooncake`},
	} {
		t.Run(test.entry, func(t *testing.T) {
			_, err := Load(Source{Environ: []string{"HOME=/", test.entry}})
			assert.EqualError(t, err, test.want)
		})
	}
}

// Variables that others read or set are none of ours.
func TestEnvironLeftAlone(t *testing.T) {
	c, err := Load(Source{Environ: []string{
		"HITLINE_KERNEL=generic", "HITLINE_CONFORMANCE=/x", "HITLINE_TEST_DRAIN=1", "HITLINE_SERVICE_HOST=10.0.0.1",
		"HITLINE_SERVICE_PORT_TCP=7557", "HITLINE_PORT=tcp://10.0.0.1:7557", "HITLINE_PORT_7557_TCP=tcp://10.0.0.1:7557",
		"HITLINE_POOL_SERVICE_HOST=10.0.0.1", "HITLINE_POOL_PORT=tcp://10.0.0.1:80", "HITLINE_LOG_PORT_80_TCP_ADDR=10.0.0.1",
		"HITLINE_ADDRESS=auto", "HITLINE_TIMEOUT=1", "HITLINE_VLLM=0.33.0", "HITLINE_ON_MISMATCH=miss", "HITLINE_LOOKUP=whole", "HITLINE_TLS_CA=/x", "HITLINE_TOKEN_FILE=/x",
		"HITLINE_POOL_NAME=x", "HITLINE_POOL_SERVICE_PORT=80", "HITLINE_POOL_SERVICE_PORT_HTTP=80", "hitline_loops=3", "HITLINE",
		"HITLINE_VERSION=1", "HITLINE_DATE=x", "HITLINE_LDFLAGS=-s", "HITLINE_PYTHON_VERSION=3", "HITLINE_WHEEL_PLATFORM=x", "HITLINE_WHEEL_PROGRAMS=x",
		"HITLINE_NAME=/a/hitline", "HITLINE_ENV_PATH=/x", "HITLINE_SERVER_NAME=/a/hitline", "HITLINE_1_ENV_PATH=/x", "HITLINE_PORT_1_TCP_START=tcp://10.0.0.1:1", "HITLINE_PORT_1_TCP_PORT_END=9",
	}})
	require.NoError(t, err)
	defaults, err := Load(Source{})
	require.NoError(t, err)
	assert.Equal(t, defaults, c)
}

// clients has the variables of the plug-in.
func TestVariablesOfThePlugIn(t *testing.T) {
	source, err := os.ReadFile("../../../../clients/python/hitline/variables.py")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "\nVARIABLES = (")
	require.True(t, found)
	text, _, _ := strings.Cut(rest, "\n)")
	var names []string
	for _, name := range regexp.MustCompile(`"([A-Z_]+)"`).FindAllStringSubmatch(text, -1) {
		names = append(names, "HITLINE_"+name[1])
	}
	assert.ElementsMatch(t, clients, names)
}
