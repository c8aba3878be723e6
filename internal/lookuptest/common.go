package lookuptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/simd"
)

// Patience is the timeout of every wait in a test.
const Patience = 20 * time.Second

// Blocks16 is a pool of one full-attention group of 16 tokens on one rank.
var Blocks16 = coordinator.Pool{HashBlockSize: 16}

// WindowPool has a group that no mask makes sparse, one that is not kept in the store, and one of
// a window.
var WindowPool = coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 64, HashLen: 32, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 64},
	{Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 17, BoundedReplay: true},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
}}

// Main runs the tests of a package that opens a server, with the kernel that the
// environment names. It fails if a goroutine is left running.
func Main(m *testing.M) {
	if err := simd.ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m, EngineLeaks...)
}

// EngineLeaks are the goroutines that gnet keeps for the whole process: a pool of workers
// and its ticker.
var EngineLeaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
	goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
}

// Eventually waits until a condition is true. what is the message if it is not in time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, Patience, time.Millisecond, what)
}

// Chain returns n hashes of hashLen bytes, joined, of the chain that seed determines.
func Chain(seed string, n, hashLen int) []byte {
	var b []byte
	prev := sha256.Sum256([]byte(seed))
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint32(prev[:], uint32(i)))
		b = append(b, append(prev[:], prev[:]...)[:hashLen]...)
	}
	return b
}

// Options returns the names of the functions of the package under test that return an Option.
func Options(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Type.Results == nil || !f.Name.IsExported() {
				continue
			}
			if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && result.Name == "Option" {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// Fields returns the names of the exported fields of a struct, those of embedded structs in place of them, with a function that
// sets each to a value that is not zero.
func Fields[T any]() map[string]func(*T) {
	fields := map[string]func(*T){}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if !f.Anonymous && f.IsExported() {
			fields[f.Name] = func(of *T) { fill(reflect.ValueOf(of).Elem().FieldByIndex(f.Index)) }
		}
	}
	return fields
}

// fill sets a value to one that is not zero: 1, true, x, or a list with one of that.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		if h, ok := v.Addr().Interface().(*coordinator.Hashes); ok {
			*h = coordinator.NewHashes(bytes.Repeat([]byte{1}, 8), 8)
		}
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else {
			v.SetUint(1)
		}
	}
}
