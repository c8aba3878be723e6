package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
)

// newCall returns a call whose body may be read.
func newCall() *call {
	return &call{
		operation: &operations[0], prompt: prompts.Get().(*prompt), http: &http.Request{ContentLength: -1},
		lease: lease{memory: newMemory(1 << 40)},
	}
}

// readBody reads the body of a request about a prompt.
func readBody(body io.Reader) (*prompt, error) {
	c := newCall()
	return c.prompt, c.readPrompt(body)
}

// Bodies that are refused, and why.
func TestBodiesRefused(t *testing.T) {
	many := func(n int, element string) string { return strings.Repeat(element+",", n) + element }
	for want, bodies := range map[error][]string{
		errSyntax: {
			``, ` `, `{`, `[]`, `5`, `"a"`, `{}{}`, `{"token_ids":[]} x`, `{"model":"a",}`, `{"dp_rank":01}`, `{"token_ids":[1,2}`, "\xef\xbb\xbf{}",
			`{"token_ids":[],"token_ids":[]}`, `{"model":"\udc00"}`, `{"token_ids":[1,]}`, `{"token_ids":[1 2]}`, `{"token_ids":[01]}`, `{"token_ids":[1`, `{"seq_hashes":["00112233`,
		},
		router.ErrField: {
			`null`, `{}`, `{"token_ids":null}`, `{"token_ids":[],"seq_hashes":[]}`, `{"token_ids":[],"lora_path":"a"}`,
			`{"model":5}`, `{"model":["a"]}`, `{"token_ids":[],"model":"` + strings.Repeat("a", maxText+1) + `"}`, `{"loadable":1}`,
			`{"token_ids":[],"model":"a","modelname":"a"}`, `{"token_ids":[],"model_name":"a","modelname":"b"}`,
			`{"token_ids":[],"a":null}`, `{"token_ids":[],"lora_id":-1}`, `{"token_ids":[],"mm_hashes":[null,"a"]}`, `{"token_ids":[],"block_mm_infos":[[]]}`,
			`{"token_ids":[],"additional_salt":"a"}`, `{"prompt":"x"}`, `{"a":` + strings.Repeat("[", 100_000), `{"seq_hashes":[],"block_hash":[]}`,
			`{"block_size":1.0}`, `{"block_size":"16"}`, `{"token_ids":[],"block_size":-1}`, `{"token_ids":[],"block_size":2147483648}`,
			`{"dp_rank":true}`, `{"num_tokens":9223372036854775808}`, `{"token_ids":1}`, `{"token_ids":{}}`, `{"token_ids":[[1]]}`, `{"token_ids":[1,"2"]}`,
			`{"token_ids":[1.5]}`, `{"token_ids":[1E5]}`, `{"token_ids":[null]}`, `{"token_ids":[9223372036854775808]}`,
			`{"seq_hashes":[18446744073709551616]}`, `{"seq_hashes":[-9223372036854775809]}`, `{"seq_hashes":[1.0]}`, `{"seq_hashes":[true]}`, `{"seq_hashes":[""]}`,
			`{"seq_hashes":["00112233445566"]}`, `{"seq_hashes":["001122334455667"]}`, `{"seq_hashes":["` + strings.Repeat("00", 65) + `"]}`,
			`{"seq_hashes":["0x11223344556677"]}`, `{"seq_hashes":["0011223344556677,"]}`, `{"seq_hashes":[1,"00112233445566778899"]}`,
		},
		errMany: {`{"token_ids":[` + many(maxTokens, "1") + `]}`, `{"seq_hashes":[` + many(maxHashes, "1") + `]}`},
	} {
		for _, body := range bodies {
			_, err := readBody(strings.NewReader(body))
			require.ErrorIs(t, err, want, "%.100q", body)
			require.NotRegexp(t, goNames, messageOf(err))
		}
	}
	_, err := readBody(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(`{"token_ids":[]}`))))
	require.ErrorIs(t, err, errSyntax)
	require.ErrorIs(t, err, iotest.ErrTimeout)
	_, err = readBody(strings.NewReader(`{"seq_hashes":[1,"2"]}`))
	require.EqualError(t, err, "bad field: seq_hashes: element 1 is no hash; give a whole number of 64 bits, or hex of 8 to 64 bytes")
}

// A request holds the memory for its lists as they arrive. What is never used of a body is not held, however long it is.
func TestBodyMemory(t *testing.T) {
	body := `{"token_ids":[1` + strings.Repeat(",1", 500_000) + `]}`
	c := newCall()
	require.NoError(t, c.readPrompt(strings.NewReader(body)))
	require.GreaterOrEqual(t, c.lease.memory.admission.Held(), int64(idBytes*500_001))
	c = newCall()
	require.NoError(t, c.readPrompt(strings.NewReader(`{"extra_keys":[`+strings.Repeat("null,", 1<<20)+`null],"token_ids":[7]}`)))
	require.Less(t, c.lease.memory.admission.Held(), int64(2*maxTexts))
	c = newCall()
	c.lease.memory = newMemory(1 << 20)
	arrived := &countingReader{Reader: strings.NewReader(body)}
	refused, isRefused := c.readPrompt(arrived).(*refusal)
	require.True(t, isRefused)
	require.Equal(t, http.StatusRequestEntityTooLarge, refused.status, "it will never fit")
	require.Contains(t, refused.Message, "limits.max_memory")
	require.Less(t, arrived.n, len(body))
}

// No more than readSize bytes of a body are decoded at a time, also after a long text.
func TestDecodedPieces(t *testing.T) {
	body := &countingReader{Reader: strings.NewReader(`{"cache_salt":"` + strings.Repeat(`\u0041`, maxText) + `","token_ids":[` + strings.Repeat("7,", 100_000) + "7]}")}
	require.NoError(t, newCall().readPrompt(body))
	require.LessOrEqual(t, body.longest, readSize)
}

type countingReader struct {
	io.Reader
	n, longest int // bytes, in all and in one call
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	r.longest = max(r.longest, n)
	return n, err
}

// Hashes and token ids are read in all their forms, with fields of other indexers that are empty.
func TestBodies(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 1))
	for range 20 {
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
		p, err := readBody(strings.NewReader(string(text)))
		require.NoError(t, err)
		require.Equal(t, tokens, append([]int64{}, p.TokenIDs.ids...))
		require.Equal(t, "a<b\u2028\\\"\x01", p.Model)
		p, err = readBody(iotest.HalfReader(strings.NewReader(`{"block_hash":null, "seq_hashes":[` + strings.Join(hashes, " ,\n") + `] }` + "\n")))
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprintf("%x", p.SeqHashes.bytes))
	}
}

// Whatever a body is, it is read or refused.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"model": "m", "token_ids": [1, 2], "block_size": 16, "lora_id": null}`))
	f.Add([]byte(`{"seq_hashes": [1, "0x2", -3], "instance_id": "a", "timeout": "1s"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := newCall()
		if err := c.readPrompt(strings.NewReader(string(body))); err == nil {
			_ = c.prompt.toQuery()
		}
		_ = newCall().readRegistration(strings.NewReader(string(body)))
	})
}
