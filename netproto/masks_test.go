package netproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// maskHeader encodes the numbers in front of a mask's runs.
func maskHeader(group, first, end, runs uint32) string { return numbers(group, first, end, runs) }

func TestMasksRoundTrip(t *testing.T) {
	const most = 1<<32 - 1
	masks := []WireMask{
		{Group: 1, First: 3, End: 9, Runs: []WireRun{{3, 5}, {8, 9}}}, {Group: 2, First: 7, End: 7},
		{First: 1, End: most, All: true}, {Group: NoGroup, First: most - 1, End: most, Runs: []WireRun{{most - 1, most}}},
	}
	var frame []byte
	for i := range masks {
		frame = AppendMask(frame, &masks[i])
	}
	require.Equal(t, maskHeader(1, 3, 9, 2)+numbers(3, 5, 8, 9)+maskHeader(2, 7, 7, 0)+maskHeader(0, 1, most, most)+
		maskHeader(most, most-1, most, 1)+numbers(most-1, most), string(frame))
	got, ok := ParseMasks(frame)
	require.True(t, ok)
	require.Equal(t, masks, got)
	got, ok = ParseMasks(nil)
	require.True(t, ok)
	require.Empty(t, got)
}

func TestMasksRefused(t *testing.T) {
	const most = 1<<32 - 1
	for name, frame := range map[string]string{
		"a cut header":             maskHeader(0, 0, 4, 0)[1:],
		"a cut second header":      maskHeader(0, 0, 4, 0) + numbers(1, 0),
		"a missing run":            maskHeader(0, 0, 9, 2) + numbers(1, 2),
		"a cut run":                maskHeader(0, 0, 9, 1) + numbers(1),
		"as many runs as there is": maskHeader(0, 0, 9, most-1) + numbers(1, 2),
		"an empty run":             maskHeader(0, 0, 9, 1) + numbers(3, 3),
		"a run that falls":         maskHeader(0, 0, 9, 1) + numbers(3, 2),
		"a run before the first":   maskHeader(0, 4, 9, 1) + numbers(3, 5),
		"a run behind the end":     maskHeader(0, 0, 9, 1) + numbers(8, 10),
		"runs that overlap":        maskHeader(0, 0, 9, 2) + numbers(1, 4, 3, 6),
		"runs that fall":           maskHeader(0, 0, 9, 2) + numbers(5, 6, 1, 2),
		"an end before the first":  maskHeader(0, 5, 4, 0),
		"a sentinel that falls":    maskHeader(0, 5, 4, most),
	} {
		_, ok := ParseMasks([]byte(frame))
		require.False(t, ok, name)
	}
}

func TestMaskReplies(t *testing.T) {
	envelope := []byte("\x01\x03\x00id\x01\x00")
	mask := maskHeader(0, 0, 4, 1) + numbers(0, 4)
	b := AppendPlanReply(nil, envelope, 64, 0)
	b = AppendFrame(b, []byte(mask), false)
	require.Equal(t, string(envelope)+string(message("\x01", be(4, 64), mask)), string(b))

	b = AppendPlanReply(nil, nil, 64, 2)
	b = AppendTailBoundary(AppendTailBoundary(b, 0, 64), 1, 80)
	b = AppendFrame(b, []byte(mask), false)
	require.Equal(t, string(message("\x01", be(4, 64)+numbers(0, 64, 1, 80), mask)), string(b))
}

// FuzzParseMasks requires that what is parsed is what the frame says, and in order.
func FuzzParseMasks(f *testing.F) {
	f.Add([]byte(maskHeader(1, 3, 9, 2) + numbers(3, 5, 8, 9) + maskHeader(0, 1, 5, 1<<32-1)))
	f.Add([]byte(maskHeader(1<<32-1, 0, 0, 0)))
	f.Add([]byte(maskHeader(0, 0, 9, 2) + numbers(1, 4, 3, 6)))
	f.Add([]byte(maskHeader(0, 0, 9, 1<<31) + numbers(1, 4)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		masks, ok := ParseMasks(frame)
		if !ok {
			require.Empty(t, masks)
			return
		}
		var again []byte
		for i := range masks {
			m := &masks[i]
			require.LessOrEqual(t, m.First, m.End)
			at := m.First
			for _, r := range m.Runs {
				require.LessOrEqual(t, at, r.Start)
				require.Less(t, r.Start, r.End)
				at = r.End
			}
			require.LessOrEqual(t, at, m.End)
			require.False(t, m.All && len(m.Runs) > 0)
			again = AppendMask(again, m)
		}
		require.Equal(t, string(frame), string(again))
	})
}
