package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router"
)

var testMemory = newMemory(1 << 40)

// readBody reads the body of a request about a prompt.
func readBody(body io.Reader) (*prompt, error) {
	c := &call{prompt: prompts.Get().(*prompt), lease: lease{memory: testMemory}}
	return c.prompt, c.readPrompt(body)
}

// Bodies that are refused, and why. It does not matter how they arrive.
func TestBodiesRefused(t *testing.T) {
	many := func(n int, element string) string { return strings.Repeat(element+",", n) + element }
	for want, bodies := range map[error][]string{
		errSyntax: {
			``, ` `, `{`, `[]`, `null`, `5`, `"a"`, `{}{}`, `{"token_ids":[]} x`, `{,}`, `{"model":"a",}`, `{"model" 1}`, `{"model":}`, `{a:1}`, `{"model":nul}`, `{"dp_rank":01}`,
			`{"dp_rank":1.}`, `{"dp_rank":NaN}`, `{"model":'b'}`, `{"model":"b}`, `{"token_ids":[1,2}`, `{"dp_rank":1/* */}`, "{\"\xff\":1}", "{\"model\":\"\xff\"}", "\xef\xbb\xbf{}", `{5:1}`,
			`{"model":"\udc00"}`, `{"token_ids":[1,]}`, `{"token_ids":[1 2]}`, `{"token_ids":[01]}`, `{"token_ids":[1`, `{"seq_hashes":["00112233`,
		},
		router.ErrField: {
			`{}`, `{"token_ids":null}`, `{"token_ids":[],"seq_hashes":[]}`, `{"token_ids":[],"lora_path":"a"}`,
			`{"model":5}`, `{"model":["a"]}`, `{"model":{}}`, `{"model":"` + strings.Repeat("a", maxText+1) + `"}`, `{"loadable":1}`, `{"loadable":"true"}`,
			`{"model":"a","model":"a"}`, `{"token_ids":[],"token_ids":[]}`, `{"token_ids":[],"model":"a","modelname":"a"}`, `{"token_ids":[],"model_name":"a","modelname":"b"}`,
			`{"token_ids":[],"a":null}`, `{"token_ids":[],"lora_id":-1}`, `{"token_ids":[],"mm_hashes":[null,"a"]}`, `{"token_ids":[],"block_mm_infos":[[]]}`, `{"token_ids":[],"additional_salt":"a"}`, `{"a":` + strings.Repeat("[", 100_000),
			`{"prompt":"` + strings.Repeat("x", 100_000) + `"}`, `{"seq_hashes":[],"block_hash":[]}`,
			`{"block_size":1.0}`, `{"block_size":1e3}`, `{"block_size":"16"}`, `{"token_ids":[],"block_size":-1}`, `{"token_ids":[],"block_size":2147483648}`,
			`{"dp_rank":true}`, `{"num_tokens":9223372036854775808}`, `{"token_ids":1}`, `{"token_ids":{}}`, `{"token_ids":[[1]]}`, `{"token_ids":[1,"2"]}`,
			`{"token_ids":[1.5]}`, `{"token_ids":[1E5]}`, `{"token_ids":[null]}`, `{"token_ids":[9223372036854775808]}`, `{"token_ids":[` + strings.Repeat("9", 10_000) + `]}`,
			`{"seq_hashes":[18446744073709551616]}`, `{"seq_hashes":[-9223372036854775809]}`, `{"seq_hashes":[1.0]}`, `{"seq_hashes":[true]}`, `{"seq_hashes":[""]}`,
			`{"seq_hashes":["00112233445566"]}`, `{"seq_hashes":["001122334455667"]}`, `{"seq_hashes":["` + strings.Repeat("00", 65) + `"]}`,
			`{"seq_hashes":["0x11223344556677"]}`, `{"seq_hashes":[1,"00112233445566778899"]}`,
		},
		errMany: {
			`{"token_ids":[` + many(maxTokens, "1") + `]}`, `{"seq_hashes":[` + many(maxHashes, "1") + `]}`, `{"` + strings.Repeat("a", maxToken+2*maxRead) + `":1}`,
			`{"model":"` + strings.Repeat("x", maxToken+2*maxRead) + `"}`,
		},
	} {
		for _, body := range bodies {
			_, err := readBody(strings.NewReader(body))
			require.ErrorIs(t, err, want, "%.100q", body)
			require.Equal(t, body == `{}` || body == `{"token_ids":null}`, strings.Contains(err.Error(), "and so is seq_hashes"), "%.100q: %v", body, err)
			if len(body) < 10_000 {
				_, err = readBody(iotest.OneByteReader(strings.NewReader(body)))
				require.ErrorIs(t, err, want, "%.100q in pieces", body)
			}
		}
	}
	_, err := readBody(strings.NewReader(`{"seq_hashes":[1,"2"]}`))
	require.EqualError(t, err, "router: bad field: seq_hashes: element 1 is no hash; give a whole number of 64 bits, or hex of 8 to 64 bytes")
}

// Bodies as large as a body may be, which must not take memory of that size.
func TestBodyMemory(t *testing.T) {
	fill := func(begin, unit, end string) string {
		return begin + strings.Repeat(unit, (int(defaultLimits.body)-len(begin)-len(end))/len(unit)) + end
	}
	for name, test := range map[string]struct {
		body string
		want error
	}{
		"text":        {fill(`{"model":"`, "x", `"}`), errMany},
		"hash":        {fill(`{"seq_hashes":["`, "0", `"]}`), errMany},
		"name":        {fill(`{"`, "x", `":1}`), errMany},
		"number":      {fill(`{"token_ids":[`, "1", `]}`), errMany},
		"spaces":      {fill(`{`, " ", `}`), errMany},
		"depth":       {fill(`{"token_ids":`, "[", ``), router.ErrField},
		"model depth": {fill(`{"model":`, "[", ``), router.ErrField},
		"fields":      {fill(`{`, `"lora_id":null,`, `"token_ids":[]}`), nil},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBody(strings.NewReader(test.body))
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, test.want, name)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20), "%s: allocated in all, garbage included", name)
	}
}

// What is read is what encoding/json reads, whatever is beside it.
func TestBodies(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 1))
	for range 100 {
		tokens, hashes, want := make([]int64, rng.IntN(3000)), make([]string, rng.IntN(300)), ""
		for i := range tokens {
			tokens[i] = rng.Int64() >> rng.IntN(64) * (1 - 2*rng.Int64N(2))
		}
		for i := range hashes {
			v := rng.Uint64() >> rng.IntN(64)
			want += fmt.Sprintf("%016x", v)
			switch rng.IntN(3) {
			case 0:
				hashes[i] = strconv.FormatUint(v, 10)
			case 1:
				hashes[i] = strconv.FormatInt(int64(v), 10)
			case 2:
				hashes[i] = fmt.Sprintf("%q", fmt.Sprintf("%016X", v))
			}
		}
		text, err := json.Marshal(map[string]any{
			"token_ids": tokens, "model": "a<b\u2028\\\"\x01", "num_tokens": rng.Int64(), "tenant_id": nil, "cache_salt": strings.Repeat("x", rng.IntN(maxText)),
			"lora_id": 0, "additional_salt": "", "extra_keys": nil, "mm_hashes": []string{}, "block_mm_infos": []any{nil, nil},
		})
		require.NoError(t, err)
		p, err := readBody(iotest.DataErrReader(bytes.NewReader(text)))
		require.NoError(t, err)
		require.Equal(t, tokens, append([]int64{}, p.TokenIDs.ids...))
		require.Equal(t, "a<b\u2028\\\"\x01", p.Model.value)
		require.False(t, p.Tenant.set)
		p, err = readBody(iotest.HalfReader(strings.NewReader(`{"block_hash":null, "seq_hashes":[` + strings.Join(hashes, " ,\n") + `] }` + "\n")))
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprintf("%x", p.SeqHashes.bytes))
	}
}

// A long prompt takes no allocation a token or a hash: its list grows by a quarter at least.
func TestBodyAllocations(t *testing.T) {
	if lookuptest.Race {
		t.Skip("the race detector allocates")
	}
	for _, list := range []string{"token_ids", "seq_hashes"} {
		body := []byte(`{"model":"llama","` + list + `":[1` + strings.Repeat(", 123456", 1<<15) + `]}`)
		read := func() {
			p, err := readBody(bytes.NewReader(body))
			if err != nil {
				t.Error(err)
			}
			p.release()
		}
		read()
		require.LessOrEqual(t, testing.AllocsPerRun(20, read), 40.0)
	}
}

// A body is read the same however it arrives.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"model": "m", "token_ids": [1, 2], "block_size": 16, "lora_id": null}`))
	f.Add([]byte(`{"seq_hashes": [1, "0x2", -3], "instance_id": "a", "timeout": "1s"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		read := func(from io.Reader) (prompt, error) {
			c := &call{prompt: new(prompt), lease: lease{memory: newMemory(1 << 40)}}
			err := c.readPrompt(from)
			return *c.prompt, err
		}
		want, wantErr := read(bytes.NewReader(body))
		got, err := read(iotest.OneByteReader(bytes.NewReader(body)))
		require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		if err == nil {
			require.Equal(t, want, got)
		}
		_ = new(call).readRegistration(bytes.NewReader(body))
	})
}
