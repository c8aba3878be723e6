package parts

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

const testMagic, testFormat = "HITLTEST", 7

// write returns a stream whose sections are written by calls.
func write(t testing.TB, sections ...func(*Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, testMagic, testFormat)
	for i, section := range sections {
		if i > 0 {
			w.Section()
		}
		section(w)
	}
	require.NoError(t, w.End())
	require.EqualValues(t, out.Len(), w.Len())
	return out.Bytes()
}

func reader(stream []byte) *Reader { return NewReader(bytes.NewReader(stream), testMagic, testFormat) }

// values writes values of all kinds.
func values(w *Writer) {
	w.Uvarint(math.MaxUint64)
	w.Bool(true)
	w.Fixed64(1 << 63)
	w.Text("text")
	w.Bytes(nil)
	w.JSON(map[string]int{"a": 1})
}

func readValues(t testing.TB, r *Reader) {
	t.Helper()
	require.EqualValues(t, uint64(math.MaxUint64), r.Uvarint(math.MaxUint64))
	require.True(t, r.Bool())
	require.EqualValues(t, uint64(1<<63), r.Fixed64())
	require.Equal(t, "text", r.Text(4))
	require.Empty(t, r.Bytes(0))
	var m map[string]int
	r.JSON(&m)
	require.Equal(t, map[string]int{"a": 1}, m)
	require.NoError(t, r.Err())
}

// What is written is read again, over many parts and sections.
func TestValues(t *testing.T) {
	empty := func(*Writer) {}
	long := strings.Repeat("x", fullPart*2)
	stream := write(t, values, empty, values, func(w *Writer) {
		for n := range uint64(3 * fullPart / 8) {
			w.Fixed64(n)
		}
		w.Text(long)
		w.Bool(false)
	}, values, values)
	r := NewReader(iotest.HalfReader(bytes.NewReader(stream)), testMagic, testFormat)
	readValues(t, r)
	require.False(t, r.More())
	require.True(t, r.NextSection())
	require.False(t, r.More())
	require.True(t, r.NextSection())
	readValues(t, r)
	require.True(t, r.NextSection())
	for n := range uint64(3 * fullPart / 8) {
		require.Equal(t, n, r.Fixed64())
	}
	require.Equal(t, long, r.Text(len(long)))
	require.True(t, r.More())
	r.SkipSection()
	require.True(t, r.NextSection())
	r.SkipSection()
	require.True(t, r.NextSection())
	readValues(t, r)
	require.EqualValues(t, len(stream), r.Offset())
	require.False(t, r.NextSection())
	require.NoError(t, r.End())
}

// A stream that was made by hand, from the document of the package.
func TestFormat(t *testing.T) {
	stream, err := hex.DecodeString("4849544c54455354" + "07000000" + "000102030405060708090a0b0c0d0e0f" + "52efddcb" + // header
		"00000000" + "05000000" + "00000000" + "4f380698" + "ac02" + "026869" + // 300, "hi"
		"03000000" + "09000000" + "01000000" + "246b4021" + "01" + "0201000000000000") // 1, 258
	require.NoError(t, err)
	r := reader(stream)
	require.EqualValues(t, 300, r.Uvarint(300))
	require.Equal(t, "hi", r.Text(2))
	require.True(t, r.NextSection())
	require.EqualValues(t, 1, r.Uvarint(1))
	require.EqualValues(t, 258, r.Fixed64())
	require.NoError(t, r.End())
}

// Values that do not fit their bounds, or a section, are refused. The error stays and says where it is.
func TestBounds(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"a number of 300; at most 299 is possible":  func(r *Reader) { r.Uvarint(299) },
		"in part 1: the section ends in the middle": func(r *Reader) { r.SkipSection(); r.Uvarint(300) },
		"a number of 300; at most 1 is possible":    func(r *Reader) { r.Bool() },
		"not a number":                              func(r *Reader) { r.Uvarint(300); r.Uvarint(math.MaxUint64) },
		"the section ends in the middle of a value": func(r *Reader) { r.Uvarint(300); r.Fixed64() },
		"the section has more than was expected":    func(r *Reader) { r.NextSection() },
		"there is a section more than was expected": func(r *Reader) { r.SkipSection(); _ = r.End() },
		"JSON that cannot be read: unexpected end":  func(r *Reader) { r.SkipSection(); r.NextSection(); r.JSON(new(int)) },
	} {
		r := reader(write(t, func(w *Writer) { w.Uvarint(300); w.buf = append(w.buf, 0x80) }, func(w *Writer) { w.Bytes(nil) }))
		read(r)
		require.ErrorContains(t, r.Err(), name)
		require.Regexp(t, `^after \d+ bytes, in part [01]: `, r.Err())
		require.Zero(t, r.Uvarint(math.MaxUint64))
		require.ErrorContains(t, r.End(), name)
	}
	var out bytes.Buffer
	w := NewWriter(&out, testMagic, testFormat)
	w.Bytes(make([]byte, MaxPart))
	require.ErrorContains(t, w.End(), "at most 1048576 are possible")
}

// Errors of the stream and of what is below it are returned.
func TestStreamErrors(t *testing.T) {
	broken := errors.New("broken")
	w := NewWriter(brokenWriter{broken}, testMagic, testFormat)
	values(w)
	require.ErrorIs(t, w.End(), broken)
	require.ErrorIs(t, NewReader(iotest.ErrReader(broken), testMagic, testFormat).Err(), broken)
	stream := write(t, values)
	r := NewReader(io.MultiReader(bytes.NewReader(stream), iotest.ErrReader(broken)), testMagic, testFormat)
	readValues(t, r)
	require.ErrorIs(t, r.End(), broken)
	require.EqualError(t, NewReader(bytes.NewReader(stream), testMagic, 8).Err(), "it has format 7, and this program reads format 8")
	require.EqualError(t, NewReader(bytes.NewReader(stream), "HITLELSE", testFormat).Err(), `it does not begin with "HITLELSE"`)
	require.ErrorContains(t, reader([]byte("hell\n")).Err(), "it does not begin with")
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// drain reads a stream of numbers in sections to its end.
func drain(r *Reader) (list []uint64, err error) {
	for {
		for r.More() {
			if n := r.Fixed64(); r.Err() == nil {
				list = append(list, n)
			}
		}
		if !r.NextSection() {
			return list, r.End()
		}
	}
}

// numbers returns sections of two numbers each.
func numbers(t testing.TB, sections int) []byte {
	return write(t, slices.Repeat([]func(*Writer){func(w *Writer) { w.Fixed64(1); w.Fixed64(2) }}, sections)...)
}

// Damage is found before what is damaged is read: a flipped bit, a cut, and parts of another stream or in another place.
func TestDamage(t *testing.T) {
	const sections, partLen = 3, partHeader + 16
	all := numbers(t, sections)
	for bit := range 8 * len(all) {
		damaged := slices.Clone(all)
		damaged[bit/8] ^= 1 << (bit % 8)
		list, err := drain(reader(damaged))
		require.Error(t, err, "bit %d", bit)
		require.Len(t, list, max(0, bit/8-headerLen)/partLen*2, "bit %d", bit)
	}
	for n := range all {
		_, err := drain(reader(all[:n]))
		require.ErrorContains(t, err, "it ends too early", "%d bytes", n)
	}
	part := func(b []byte, n int) []byte { return b[headerLen+n*partLen:][:partLen] }
	head, other := all[:headerLen], numbers(t, sections)
	for want, stream := range map[string][]byte{
		"after 0 bytes, in part 0: it ends too early": nil,
		"part 1: the checksum of the part is wrong":   slices.Concat(head, part(all, 0), part(other, 1), part(all, 2)),
		"part 1: the header of the part is damaged":   slices.Concat(head, part(all, 0), part(all, 2)),
		"part 2: something follows the end":           append(slices.Clone(all), 0),
		"part 0: the header of the part is damaged":   write(t, func(w *Writer) { w.flags = isLast << 1 }),
	} {
		_, err := drain(reader(stream))
		require.ErrorContains(t, err, want)
	}
}

// Whatever the header of a part says, no more is allocated than a part may have.
func TestAllocation(t *testing.T) {
	stream := numbers(t, 1)
	for _, length := range []uint32{MaxPart, MaxPart + 1, math.MaxUint32} {
		binary.LittleEndian.PutUint32(stream[headerLen+4:], length)
		r := reader(stream)
		_, err := drain(r)
		require.Error(t, err, fmt.Sprint(length))
		require.LessOrEqual(t, cap(r.buf), MaxPart)
	}
}
