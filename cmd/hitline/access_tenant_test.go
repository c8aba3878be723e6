package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
)

// A tenant gets the same bytes for a pool that is another's as for one that does not exist: the
// second of each pair, whose words have the length of the first.
func TestTenantsCannotTellPools(t *testing.T) {
	s := startTable(t, tableConfig)
	names := strings.NewReplacer("qwen", "gone", "0.33.0", "0.32.0")
	for _, existing := range []string{
		`{"name":"qwen"}`,
		`{"name":"qwen","model_name":"qwen"}`,                // as it is
		`{"name":"qwen","model_name":"qwen","tp_size":2}`,    // with a field that differs
		`{"name":"qwen","model_name":"qwen","tp_size":0}`,    // with a bad one
		`{"name":"qwen","model_name":"qwen","no_field":2}`,   // that cannot be read
		`{"model_name":"qwen"}`,                              // by its fields alone
		`{"vllm":"0.33.0"}`,                                  // the server's own
		`{"name":"llama","model_name":"qwen","tp_size":"2"}`, // its own name
	} {
		answers := func(token, description string) (all [][][]byte) {
			c, err := peer{address: s.address["tokens"], token: token}.dialRaw()
			require.NoError(t, err)
			defer c.Close()
			_, err = c.exchange([]byte("auth"), []byte(tokenOf(token)))
			require.NoError(t, err)
			for _, frames := range [][][]byte{{[]byte("pool"), []byte(description)}, tableFrames["lookup"], tableFrames["store"], tableFrames["load_mask"]} {
				reply, err := c.exchange(frames...)
				require.NoError(t, err)
				for i := range reply {
					reply[i] = []byte(names.Replace(string(reply[i])))
				}
				all = append(all, reply)
			}
			return all
		}
		assert.Equal(t, answers("llama", names.Replace(existing)), answers("llama", existing), existing)
		assert.Equal(t, "\x00", string(answers("llama", existing)[0][0]), existing)
	}
	tenant, err := peer{address: s.address["tokens"], token: tokenOf("llama")}.dial()
	require.NoError(t, err)
	defer tenant.Close()
	seen, all := statOf(t, tenant), statOf(t, s.pools[""])
	assert.Equal(t, []any{int64(1), []string{"llama"}, "llama"}, []any{seen.Pools, seen.PoolNames, seen.Pool})
	assert.Equal(t, []any{int64(3), []string{"llama", "qwen"}}, []any{all.Pools, all.PoolNames}, "a tenant makes no pool")

	// The same question of a peer that may tell: the pairs above do differ.
	ops, err := peer{address: s.address["loopback"]}.dialRaw()
	require.NoError(t, err)
	defer ops.Close()
	for description, status := range map[string]string{`{"name":"qwen"}`: "\x01", `{"name":"gone"}`: "\x00"} {
		reply, err := ops.exchange([]byte("pool"), []byte(description))
		require.NoError(t, err)
		assert.Equal(t, status, string(reply[0]), description)
	}
	reply, err := ops.exchange([]byte("pool"), []byte(`{"name":"llama","model_name":"llama"}`))
	require.NoError(t, err)
	var pool api.Pool
	require.NoError(t, json.Unmarshal(reply[1], &pool))
	assert.Equal(t, "llama", pool.Name)
}
