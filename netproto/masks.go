package netproto

import "encoding/binary"

// WireMask is the mask of one group as it is sent in a reply. Chunks are numbered from the
// beginning of the prompt.
type WireMask struct {
	// Group is the number of the store group, NoGroup if the group is not kept in the store.
	Group uint32
	// The mask has an entry for each chunk from First to End-1.
	First, End uint32
	// All reports whether the mask is the all-true sentinel. It has no Runs.
	All bool
	// Runs are the runs of true entries, ascending.
	Runs []WireRun
}

// WireRun is the chunks from Start to End-1.
type WireRun struct{ Start, End uint32 }

// NoGroup is the Group of a mask of a group that is not kept in the store.
const NoGroup = ^uint32(0)

const (
	maskHeaderLen = 16
	runLen        = 8
	// allRuns is the number of runs of the all-true sentinel.
	allRuns = ^uint32(0)
)

// AppendMask appends a mask to the frame of masks dst.
func AppendMask(dst []byte, m *WireMask) []byte {
	runs := uint32(len(m.Runs))
	if m.All {
		runs = allRuns
	}
	for _, v := range [...]uint32{m.Group, m.First, m.End, runs} {
		dst = binary.BigEndian.AppendUint32(dst, v)
	}
	for _, r := range m.Runs {
		dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, r.Start), r.End)
	}
	return dst
}

// ParseMasks returns the masks of a frame of masks. It returns false if the frame is cut, or a
// mask's runs do not ascend within its chunks.
func ParseMasks(frame []byte) (masks []WireMask, ok bool) {
	for len(frame) > 0 {
		if len(frame) < maskHeaderLen {
			return nil, false
		}
		m := WireMask{
			Group: binary.BigEndian.Uint32(frame), First: binary.BigEndian.Uint32(frame[4:]),
			End: binary.BigEndian.Uint32(frame[8:]),
		}
		runs := binary.BigEndian.Uint32(frame[12:])
		frame = frame[maskHeaderLen:]
		if m.All = runs == allRuns; m.All {
			runs = 0
		}
		if int64(runs)*runLen > int64(len(frame)) {
			return nil, false
		}
		for range runs {
			m.Runs = append(m.Runs, WireRun{binary.BigEndian.Uint32(frame), binary.BigEndian.Uint32(frame[4:])})
			frame = frame[runLen:]
		}
		if !m.ascends() {
			return nil, false
		}
		masks = append(masks, m)
	}
	return masks, true
}

// ascends reports whether the runs ascend within the chunks of the mask.
func (m *WireMask) ascends() bool {
	at := m.First
	for _, r := range m.Runs {
		if r.Start < at || r.End <= r.Start {
			return false
		}
		at = r.End
	}
	return at <= m.End
}
