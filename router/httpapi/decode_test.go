package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
)

// allFields are those of any request.
const allFields = fieldsOfRegister | fieldsOfPredict | fieldsOfQuery | fieldsOfQueryByHash

var testLimits = Limits{}.withDefaults()

// decode reads a body as one with these fields, from a reader that gives a few bytes at a time if size is not 0.
func decode(t testing.TB, body string, fields fieldSet, size int) (*request, error) {
	t.Helper()
	r := newRequest(&testLimits)
	t.Cleanup(r.release)
	var source io.Reader = strings.NewReader(body)
	if size > 0 {
		source = &pieces{Reader: source, size: size}
	}
	return r, r.read(source, fields)
}

// pieces gives at most size bytes at a time, and nothing now and then.
type pieces struct {
	io.Reader
	size  int
	empty bool // the last time it gave nothing
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.empty = len(b)%7 == 0 && !p.empty; p.empty {
		return 0, nil
	}
	return p.Reader.Read(b[:min(len(b), p.size)])
}

// Bodies that are refused, and why.
func TestDecodeRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+2)
	for body, want := range map[string]error{
		``: errSyntax, ` `: errSyntax, `{`: errSyntax, `[]`: errSyntax, `null`: errSyntax, `5`: errSyntax, `"a"`: errSyntax, `{}{}`: errSyntax,
		`{} x`: errSyntax, `{,}`: errSyntax, `{"a":1,}`: errSyntax, `{"a" 1}`: errSyntax, `{"a":}`: errSyntax, `{a:1}`: errSyntax,
		`{"a":1 "b":2}`: errSyntax, `{"a":tru}`: errSyntax, `{"a":nul}`: errSyntax, `{"a":+1}`: errSyntax, `{"a":01}`: errSyntax,
		`{"a":-}`: errSyntax, `{"a":1.}`: errSyntax, `{"a":.5}`: errSyntax, `{"a":1e}`: errSyntax, `{"a":1e+}`: errSyntax, `{"a":0x1}`: errSyntax,
		`{"a":NaN}`: errSyntax, `{"a":Infinity}`: errSyntax, `{"a":'b'}`: errSyntax, `{"a":"` + "\n" + `"}`: errSyntax, `{"a":"\x"}`: errSyntax,
		`{"a":"\u12g4"}`: errSyntax, `{"a":"b}`: errSyntax, `{"a":[1,2}`: errSyntax, `{"a":{"b":1]}`: errSyntax, `{"a":1/* */}`: errSyntax,
		`{"a":` + deep + `}`: errSyntax, `{"a":` + strings.Repeat(`{"a":`, 100_000): errSyntax, `{"token_ids":[[1]]}`: errField,
		`{"\ud800":1}`: errSyntax, `{"\ud800\u0041":1}`: errSyntax, "{\"\xff\":1}": errSyntax, "\xef\xbb\xbf{}": errSyntax,

		`{"model":5}`: errField, `{"model":["a"]}`: errField, `{"model":{}}`: errField, `{"model":true}`: errField,
		`{"model":"a","model":"a"}`: errField, `{"model":"a","modelname":"a"}`: errField, `{"seq_hashes":[],"block_hash":[]}`: errField,
		`{"model":"` + strings.Repeat("a", maxText+1) + `"}`: errField, "{\"model\":\"\xff\"}": errSyntax, `{"model":"\udc00"}`: errSyntax,
		`{"loadable":1}`: errField, `{"loadable":"true"}`: errField, `{"loadable":TRUE}`: errSyntax, `{5:1}`: errSyntax, `{null:1}`: errSyntax, `{"` + strings.Repeat("a", maxName+1) + `":1}`: errSyntax, `{"loadable":truE}`: errSyntax,
		`{"block_size":0}`: errField, `{"block_size":-16}`: errField, `{"block_size":16.0}`: errField, `{"block_size":1e3}`: errField,
		`{"block_size":"16"}`: errField, `{"block_size":2147483648}`: errField, `{"block_size":016}`: errField, `{"dp_rank":016}`: errSyntax, `{"block_size":[16]}`: errField,
		`{"dp_rank":65536}`: errField, `{"dp_rank":-1}`: errField, `{"num_tokens":9223372036854775808}`: errField,
		`{"token_ids":1}`: errField, `{"token_ids":"1"}`: errField, `{"token_ids":{}}`: errField, `{"token_ids":[1,"2"]}`: errField,
		`{"token_ids":[1.5]}`: errInteger, `{"token_ids":[1E5]}`: errInteger, `{"token_ids":[null]}`: errField, `{"token_ids":[true]}`: errField,
		`{"token_ids":[1,]}`: errSyntax, `{"token_ids":[,1]}`: errSyntax, `{"token_ids":[1 2]}`: errSyntax, `{"token_ids":[-]}`: errSyntax,
		`{"token_ids":[01]}`: errSyntax, `{"token_ids":[-01]}`: errSyntax, `{"token_ids":[00]}`: errSyntax, `{"token_ids":[1`: errSyntax,
		`{"token_ids":[9223372036854775808]}`: errRange, `{"token_ids":[-9223372036854775809]}`: errRange,
		`{"token_ids":[` + strings.Repeat("9", 100_000) + `]}`: errField, `{"token_ids":[` + strings.Repeat("0", 100_000) + `]}`: errSyntax,
		`{"seq_hashes":[18446744073709551616]}`: errRange, `{"seq_hashes":[-9223372036854775809]}`: errRange,
		`{"seq_hashes":[1.0]}`: errField, `{"seq_hashes":["00112233445566"]}`: errField, `{"seq_hashes":["001122334455667"]}`: errField,
		`{"seq_hashes":["` + strings.Repeat("00", 65) + `"]}`: errField, `{"seq_hashes":["zz112233445566"]}`: errField,
		`{"seq_hashes":["0x112233445566"]}`: errField, `{"seq_hashes":[1,"00112233445566778899"]}`: errField, `{"seq_hashes":[""]}`: errField,
		`{"seq_hashes":["00112233445566778899","0011223344556677"]}`: errField, `{"seq_hashes":["00112233`: errSyntax,
	} {
		for _, size := range []int{0, 1, 3} {
			_, err := decode(t, body, allFields, size)
			require.ErrorIs(t, err, want, "%.100q in pieces of %d", body, size)
		}
	}
}

// The bounds of tokens and hashes, each at its edge.
func TestDecodeBounds(t *testing.T) {
	limits := Limits{MaxTokens: 3, MaxHashes: 2}.withDefaults()
	for body, want := range map[string]error{
		`{"token_ids":[1,2,3]}`: nil, `{"token_ids":[1,2,3,4]}`: errMany, `{"seq_hashes":[1,2]}`: nil, `{"seq_hashes":[1,2,3]}`: errMany,
		`{"model":"` + strings.Repeat("a", maxText) + `"}`: nil, `{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`: nil,
		`{"a":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`: errSyntax,
	} {
		r := newRequest(&limits)
		err := r.read(strings.NewReader(body), allFields)
		require.Equal(t, want == nil, err == nil, "%.80s: %v", body, err)
		require.True(t, want == nil || errors.Is(err, want), "%.80s: %v", body, err)
		r.release()
	}
}

// Bodies as large as a body may be, which must not take memory of that size.
func TestDecodeMemory(t *testing.T) {
	fill := func(begin, unit, end string) string {
		return begin + strings.Repeat(unit, (DefaultMaxBody-len(begin)-len(end))/len(unit)) + end
	}
	nested := `{"a":` + strings.Repeat(`{"`+strings.Repeat("n", maxName-10)+`":`, maxDepth)
	for name, test := range map[string]struct {
		body string
		want error
		mib  uint64 // allocated in all, garbage included
	}{
		"text":         {fill(`{"a":"`, "x", `"}`), errMany, 5},
		"text of ours": {fill(`{"model":"`, "x", `"}`), errMany, 5},
		"hash":         {fill(`{"seq_hashes":["`, "0", `"]}`), errMany, 5},
		"name":         {fill(`{"`, "x", `":1}`), errMany, 5},
		"number":       {fill(`{"token_ids":[`, "1", `]}`), errMany, 5},
		"spaces":       {fill(`{`, " ", `}`), errMany, 5},
		"depth":        {fill(`{"a":`, "[", ``), errSyntax, 1},
		"our depth":    {fill(`{"token_ids":`, "[", ``), errField, 1},
		"long names":   {nested + `"` + strings.Repeat("x", 1000), errSyntax, 8},
		"more names":   {nested + `{"x":1`, errSyntax, 8},
		"inner name":   {`{"a":{"` + strings.Repeat("x", maxName) + `":1}}`, errSyntax, 1},
		"fields":       {fill(`{`, `"a":1,`, `"a":1}`), nil, 1},
		"elements":     {fill(`{"a":[`, `{"b":[]},`, `1]}`), nil, 1},
	} {
		var r request // none that has its buffers
		r.limits = &testLimits
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := r.read(strings.NewReader(test.body), allFields)
		runtime.ReadMemStats(&after)
		require.True(t, errors.Is(err, test.want), "%s: %v", name, err)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, test.mib<<20, name)
	}
}

// The bound of what is skipped. A text below it is skipped.
func TestDecodeLongToken(t *testing.T) {
	for length, want := range map[int]error{maxToken - 100: nil, maxToken + 2*maxRead: errMany} {
		_, err := decode(t, `{"prompt":"`+strings.Repeat("x", length)+`"}`, allFields, 0)
		require.ErrorIs(t, err, want)
	}
}

// An error of the connection is that of the request, not one of JSON.
func TestDecodeReadError(t *testing.T) {
	broken := errors.New("broken")
	for _, body := range []string{``, `{`, `{"model"`, `{"model":"a`, `{"token_ids":[1`, `{"token_ids":[-`, `{"seq_hashes":["00`, `{}`, `{} `, `{"a":1e`} {
		r := newRequest(&testLimits)
		err := r.read(io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)), allFields)
		require.ErrorIs(t, err, broken, body)
		require.NotErrorIs(t, err, errSyntax, body)
		r.release()
		r = newRequest(&testLimits)
		err = r.read(io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)), allFields)
		require.ErrorIs(t, err, errSyntax, "a body that is shorter than its length: %s", body)
		r.release()
	}
}

// Fields of other requests are skipped whatever they are, null is as if a field were not there.
func TestDecodeSkips(t *testing.T) {
	body := `{"token_ids": [1], "seq_hashes": {"a": [1, -2.5e+7, "\u00e9\"", true, false, null, {}, [], 0, -0, 0.1]}, "dp_rank": "x", "dp_rank": 1,
	  "model": null, "model": "m\u00e9\ud83d\ude00\n", "cache_salt": null, "unknown": "` + strings.Repeat("x", 2*maxText) + `"}` + "\n"
	for size := range 20 {
		r, err := decode(t, body, fieldsOfQuery, size)
		require.NoError(t, err)
		require.Equal(t, []int64{1}, r.tokens)
		require.Equal(t, "mé😀\n", r.model)
		require.Equal(t, fieldTokens|fieldModel, r.seen)
		require.Empty(t, r.hashes)
	}
}

// What is read is what encoding/json reads, in pieces of any size.
func TestDecodeRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 1))
	for range 300 {
		tokens, hashes := make([]int64, rng.IntN(5000)), make([]string, rng.IntN(300))
		for i := range tokens {
			tokens[i] = rng.Int64() >> rng.IntN(64)
			if rng.IntN(100) == 0 {
				tokens[i] = -tokens[i] - 1
			}
		}
		for i := range hashes {
			switch v := rng.Uint64() >> rng.IntN(64); rng.IntN(3) {
			case 0:
				hashes[i] = strconv.FormatUint(v, 10)
			case 1:
				hashes[i] = strconv.FormatInt(int64(v), 10)
			case 2:
				hashes[i] = fmt.Sprintf("%q", fmt.Sprintf("%016X", v))
			}
		}
		text, err := json.Marshal(map[string]any{"token_ids": tokens, "model": "a<b\u2028\\\"\x01", "num_tokens": rng.Int64()})
		require.NoError(t, err)
		if rng.IntN(2) == 0 {
			text = bytes.ReplaceAll(text, []byte{','}, []byte(", "))
		}
		body := strings.TrimSuffix(string(text), "}") + `, "seq_hashes":[` + strings.Join(hashes, " ,\n") + `] }`
		r, err := decode(t, body, allFields, rng.IntN(100))
		require.NoError(t, err)
		require.True(t, slices.Equal(tokens, r.tokens))
		require.Equal(t, "a<b\u2028\\\"\x01", r.model)
		require.Len(t, r.hashes, 8*len(hashes))
		for i, text := range hashes {
			require.Equal(t, bitsOf(text), fmt.Sprintf("%x", r.hashes[8*i:8*i+8]), text)
		}
	}
}

// bitsOf returns the hash of a JSON value in hex.
func bitsOf(text string) string {
	if text[0] == '"' {
		return strings.ToLower(strings.Trim(text, `"`))
	}
	v, _ := new(big.Int).SetString(text, 10)
	if v.Sign() < 0 {
		v.Add(v, new(big.Int).Lsh(big.NewInt(1), 64))
	}
	return fmt.Sprintf("%016x", v)
}

// Numbers of unusual forms, in the middle of plain ones.
func TestDecodeOddNumbers(t *testing.T) {
	list := func(middle string) string {
		plain := strings.Repeat("123456, 7,", 20)
		return `{"token_ids":[` + plain + middle + `,` + plain + `8]}`
	}
	for middle, want := range map[string]int64{
		"-1": -1, "0": 0, "999999999999999999": 999999999999999999, "9223372036854775807": math.MaxInt64, "\t5": 5, "  5": 5, "5 ": 5, "5\n": 5,
	} {
		middle = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(middle)
		r, err := decode(t, list(middle), allFields, 0)
		require.NoError(t, err, middle)
		require.Len(t, r.tokens, 82)
		require.Equal(t, want, r.tokens[40], middle)
		require.Equal(t, []int64{123456, 7, 8}, r.tokens[79:])
	}
	for middle, want := range map[string]error{
		"01": errSyntax, "00": errSyntax, "": errSyntax, " ": errSyntax, "1.5": errField, "1e5": errField, "9223372036854775808": errField,
		"00000000000000000001": errSyntax, `"1"`: errField, "9999999999999999999": errField, ",": errSyntax, "1 2": errSyntax, "1:2": errSyntax, "/": errSyntax, "]": errSyntax,
		"99999999999999999999999999": errField, "1-": errSyntax,
	} {
		_, err := decode(t, list(middle), allFields, 0)
		require.ErrorIs(t, err, want, middle)
	}
}

// Numbers at the edges of 64 bits.
func TestDecodeEdges(t *testing.T) {
	r, err := decode(t, `{"token_ids":[0,-0,9223372036854775807,-9223372036854775808,  1
	,2]}`, allFields, 0)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, math.MaxInt64, math.MinInt64, 1, 2}, r.tokens)
	r, err = decode(t, `{"block_hash":[-1,18446744073709551615,-9223372036854775808,0]}`, allFields, 0)
	require.NoError(t, err)
	require.Equal(t, "ffffffffffffffffffffffffffffffff80000000000000000000000000000000", fmt.Sprintf("%x", r.hashes))
}

// oracle is how encoding/json reads the fields that FuzzDecode compares.
type oracle struct {
	Tokens   []int64 `json:"token_ids"`
	Model    *string `json:"model"`
	Loadable *bool   `json:"loadable"`
	Rank     *int64  `json:"dp_rank"`
}

// FuzzDecode checks that whatever is read is JSON, that its values are those that encoding/json reads, and that the
// result does not depend on how the body arrives.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"token_ids":[1,2,3],"model":"a"}`, `{"seq_hashes":["00112233445566778899aabbccddeeff",-1]}`, `{"a":[1.5e-7,{"b":null}],"dp_rank":7}`,
		`{"model":"\u00e9\ud83d\ude00"}`, `{"token_ids":[1e5]}`, `{"token_ids":[01]}`, `{"loadable":true} `, `{"num_tokens":-0}`, `[`, `{"model":null}`,
	} {
		f.Add([]byte(body), uint8(0))
		f.Add([]byte(body), uint8(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		r, err := decode(t, string(body), allFields, 0)
		inPieces, pieceErr := decode(t, string(body), allFields, int(size)+1)
		require.Equal(t, err == nil, pieceErr == nil, "%v, in pieces %v", err, pieceErr)
		if err != nil {
			// Texts of errors may differ: they show what had arrived.
			require.Equal(t, refusalOf(err).code, refusalOf(pieceErr).code)
			require.True(t, errors.Is(err, errSyntax) || errors.Is(err, errField) || errors.Is(err, errMany), err)
			return
		}
		require.True(t, json.Valid(body))
		require.True(t, slices.Equal(r.tokens, inPieces.tokens) && bytes.Equal(r.hashes, inPieces.hashes) && r.model == inPieces.model)
		if r.hashLen > 0 {
			require.Zero(t, len(r.hashes)%r.hashLen)
		}
		var want map[string]json.RawMessage // names in their exact case
		require.NoError(t, json.Unmarshal(body, &want))
		exact, err := json.Marshal(map[string]json.RawMessage{
			"token_ids": orNull(want["token_ids"]), "model": orNull(want["model"]), "loadable": orNull(want["loadable"]), "dp_rank": orNull(want["dp_rank"]),
		})
		require.NoError(t, err)
		var o oracle
		require.NoError(t, json.Unmarshal(exact, &o))
		// A field that was null and is there again has one value here; encoding/json takes the last.
		if o.Tokens != nil {
			require.True(t, slices.Equal(o.Tokens, r.tokens))
		}
		if o.Model != nil && want["modelname"] == nil {
			require.Equal(t, *o.Model, r.model)
		}
		if o.Loadable != nil {
			require.Equal(t, *o.Loadable, r.loadable)
		}
		if o.Rank != nil {
			require.Equal(t, *o.Rank, r.rank)
		}
	})
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// manyTokens returns a body of n token ids as they are in a vocabulary of 150,000.
func manyTokens(n int) []byte {
	rng := rand.New(rand.NewPCG(26, 2))
	body := []byte(`{"model":"llama","block_size":16,"token_ids":[`)
	for i := range n {
		if i > 0 {
			body = append(body, ',', ' ')
		}
		body = strconv.AppendInt(body, rng.Int64N(150_000), 10)
	}
	return append(body, `]}`...)
}

// manyHashes returns a body of n hashes, half of them with a sign.
func manyHashes(n int) []byte {
	rng := rand.New(rand.NewPCG(26, 3))
	body := []byte(`{"model":"llama","seq_hashes":[`)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		if i%2 == 0 {
			body = strconv.AppendUint(body, rng.Uint64(), 10)
		} else {
			body = strconv.AppendInt(body, -rng.Int64(), 10)
		}
	}
	return append(body, `]}`...)
}

// A long prompt takes no allocation a token or a hash.
func TestDecodeAllocations(t *testing.T) {
	if lookuptest.Race {
		t.Skip("the race detector allocates")
	}
	for _, body := range [][]byte{manyTokens(1 << 17), manyHashes(1 << 13)} {
		reader := bytes.NewReader(body)
		read := func() {
			r := newRequest(&testLimits)
			reader.Reset(body)
			if err := r.read(reader, fieldsOfQuery|fieldsOfQueryByHash); err != nil || len(r.tokens) != 1<<17 && len(r.hashes) != 8<<13 {
				t.Error(err)
			}
			r.release()
		}
		read()
		require.LessOrEqual(t, testing.AllocsPerRun(20, read), 12.0)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := manyTokens(1 << 17)
	b.Run("impl=httpapi/tokens=131072", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		reader := bytes.NewReader(body)
		for b.Loop() {
			r := newRequest(&testLimits)
			reader.Reset(body)
			if err := r.read(reader, fieldsOfQuery); err != nil {
				b.Fatal(err)
			}
			r.release()
		}
	})
	b.Run("impl=encoding-json/tokens=131072", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			var o oracle
			if err := json.Unmarshal(body, &o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
