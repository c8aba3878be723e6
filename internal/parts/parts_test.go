package parts

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

const maxTestPayload = 8

// write returns parts with kinds from 1 on.
func write(t *testing.T, seed uint32, payloads ...string) (all []byte, ends []int) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, seed, maxTestPayload)
	for i, payload := range payloads {
		require.NoError(t, w.Write(uint32(i+1), append(make([]byte, HeaderLen), payload...)))
		ends = append(ends, out.Len())
	}
	return out.Bytes(), ends
}

// readAll returns the payloads in front of the first error.
func readAll(seed uint32, in io.Reader) (payloads []string, err error) {
	r := NewReader(in, seed, maxTestPayload)
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return payloads, err
		}
		if int(kind) != len(payloads)+1 || r.Number() != kind {
			return payloads, errors.New("another kind or number")
		}
		payloads = append(payloads, string(payload))
	}
}

func TestParts(t *testing.T) {
	want := []string{"one", "", "8 bytes."}
	all, ends := write(t, 7, want...)
	got, err := readAll(7, iotest.OneByteReader(bytes.NewReader(all)))
	require.ErrorIs(t, err, ErrCut)
	require.Equal(t, want, got)

	in := bytes.NewReader(all)
	r := NewReader(in, 7, maxTestPayload)
	for i := range want {
		_, _, err := r.Next()
		require.NoError(t, err)
		require.EqualValues(t, ends[i], r.Offset())
		require.Equal(t, len(all)-ends[i], in.Len(), "bytes behind the part were read")
	}
}

func TestLimits(t *testing.T) {
	require.Error(t, NewWriter(io.Discard, 0, maxTestPayload).Write(1, make([]byte, HeaderLen+maxTestPayload+1)))
	var large bytes.Buffer
	require.NoError(t, NewWriter(&large, 0, maxTestPayload+1).Write(1, make([]byte, HeaderLen+maxTestPayload+1)))
	_, err := readAll(0, &large)
	require.ErrorIs(t, err, ErrDamaged)

	broken := errors.New("broken")
	require.ErrorIs(t, NewWriter(brokenWriter{broken}, 0, maxTestPayload).Write(1, make([]byte, HeaderLen)), broken)
	_, err = readAll(0, iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestDamage(t *testing.T) {
	want := []string{"one", "two", "three"}
	all, ends := write(t, 7, want...)
	for bit := range 8 * len(all) {
		damaged := slices.Clone(all)
		damaged[bit/8] ^= 1 << (bit % 8)
		got, err := readAll(7, bytes.NewReader(damaged))
		require.Error(t, err)
		intact := 0
		for ends[intact] <= bit/8 {
			intact++
		}
		require.Equal(t, want[:intact], append([]string{}, got...), "bit %d", bit)
	}
	for n := range all {
		_, err := readAll(7, bytes.NewReader(all[:n]))
		require.ErrorIs(t, err, ErrCut, "%d bytes", n)
	}
	_, err := readAll(8, bytes.NewReader(all))
	require.ErrorIs(t, err, ErrChecksum, "of another seed")
	_, err = readAll(7, bytes.NewReader(slices.Concat(all[:ends[0]], all[ends[1]:])))
	require.ErrorIs(t, err, ErrDamaged, "a part is missing")
}
