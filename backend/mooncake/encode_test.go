package mooncake

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// unhex decodes hex with spaces.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

// TestCodes computes the codes of functions and types.
func TestCodes(t *testing.T) {
	for name, id := range map[string]uint32{"BatchExistKey": fnBatchExistKey, "BatchProbeKey": fnBatchProbeKey, "GetReplicaList": fnGetReplicaList,
		"ServiceReady": fnServiceReady, "RemoveAll": fnRemoveAll, "Ping": fnPing} {
		sum := md5.Sum([]byte("mooncake::WrappedMasterService::" + name))
		require.Equal(t, binary.BigEndian.Uint32(sum[:]), id, name)
	}
	for _, typ := range []wireType{typeKeysTenant, typeKeys, typeBoolTenant, typeBool, typeProbe, typeKeyTenant, typeReplicas, typeReplicasOld, typeExists, typeVersion, typeCount, typeText, typeCodeText, typeClient, typeView} {
		sum := md5.Sum([]byte(typ.literal))
		require.Equal(t, binary.BigEndian.Uint32(sum[:])&^1, typ.code, "%x", typ.literal)
	}
}

// existRequest is appendExist for keys that fit into a request.
func existRequest(dst []byte, form Form, keys backend.KeyList, tenant string) []byte {
	dst, _ = appendExist(dst, form, keys, 0, len(keys), tenant)
	return dst
}

// TestFullRequest has keys that do not fit into one request: it takes those that do, and always one.
func TestFullRequest(t *testing.T) {
	long := strings.Repeat("k", maxRequestBytes/2-8)
	for _, tc := range []struct {
		keys      backend.KeyList
		from, end int
	}{
		{backend.KeyList{long, long, long}, 0, 2},
		{backend.KeyList{"k", long, long, long}, 1, 3},
		{backend.KeyList{long + long + long, long}, 0, 1},
	} {
		body, end := appendExist(nil, FormKeys, tc.keys, tc.from, len(tc.keys), "")
		require.Equal(t, tc.end, end)
		require.Equal(t, existRequest(nil, FormKeys, tc.keys[tc.from:end], ""), body)
	}
}

// TestEncode compares with bytes that the RPC library of the master has accepted.
func TestEncode(t *testing.T) {
	frame := endRequest(existRequest(appendRequest(nil, 2, fnBatchExistKey), FormTenant, []string{"a", "missing", "err"}, "default"))
	require.Equal(t, unhex(t, "1500000002000000b0a69fb81b00000000000000 628df700 03 0161 076d697373696e67 03657272 0764656661756c74"), frame)

	keys := []string{"a", "missing", "err"}
	require.Equal(t, unhex(t, "1ae1868a 03 0161 076d697373696e67 03657272"), existRequest(nil, FormKeys, keys, "default"))
	require.Equal(t, unhex(t, "628df700 00 0764656661756c74"), existRequest(nil, FormTenant, nil, "default"))
	require.Equal(t, unhex(t, "1ae1868a 00"), existRequest(nil, FormKeys, nil, "default"))

	require.Equal(t, unhex(t, "638df700 08 2c01 0100 6b"), existRequest(nil, FormTenant, slices.Repeat([]string{"k"}, 300), "default")[:10])
	require.Equal(t, unhex(t, "638df700 08 0100 2c01 6b"), existRequest(nil, FormTenant, []string{strings.Repeat("k", 300)}, "default")[:10])
	require.Equal(t, unhex(t, "638df700 08 0100 0100 6b 0001"), existRequest(nil, FormTenant, []string{"k"}, strings.Repeat("t", 256))[:12])
	require.Equal(t, unhex(t, "638df700 10 70110100 01000000 6b"), existRequest(nil, FormTenant, slices.Repeat([]string{"k"}, 70000), "default")[:14])

	require.Equal(t, unhex(t, "74c2a648 01 0764656661756c74"), appendRemoveAll(nil, FormTenant, "default"))
	require.Equal(t, unhex(t, "d8ffc813 01"), appendRemoveAll(nil, FormKeys, "default"))
}

func TestWidths(t *testing.T) {
	widths := map[int]int{0: 1, 255: 1, 256: 2, 65535: 2, 65536: 4, math.MaxInt32: 4}
	if most := int64(math.MaxInt); most > math.MaxUint32 { // otherwise no int needs 8 bytes
		widths[int(min(most, math.MaxUint32))], widths[int(min(most, 1<<32))] = 4, 8
	}
	for n, want := range widths {
		require.Equal(t, want, widthOf(n), "%d", n)
		body := appendLen(appendHead(nil, typeText, want), want, n)
		r := newReader(body, typeText)
		require.NoError(t, r.err)
		require.Equal(t, want, r.width)
		require.EqualValues(t, n, r.uint(r.width))
		require.NoError(t, r.end())
	}
}

func TestEncodeAllocatesNothing(t *testing.T) {
	keys := backend.Keys(backend.KeyList(slices.Repeat([]string{"Llama-3.1-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@71a113680994f448011a92e7afbf7e4d4df7ad45654c7a57614651589aa514e7"}, 512)))
	var out []byte
	require.Zero(t, testing.AllocsPerRun(10, func() {
		out, _ = appendExist(appendRequest(out[:0], 1, fnBatchExistKey), FormTenant, keys, 0, keys.Len(), "default")
		out = endRequest(out)
	}))
}

func BenchmarkEncode(b *testing.B) {
	keys := backend.Keys(backend.KeyList(slices.Repeat([]string{strings.Repeat("k", 130)}, 512)))
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out, _ = appendExist(out[:0], FormTenant, keys, 0, keys.Len(), "default")
	}
	b.SetBytes(int64(len(out)))
}
