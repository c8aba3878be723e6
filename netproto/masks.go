package netproto

import "encoding/binary"

// Mask is the mask of one group as it is sent in a reply. Chunks are numbered from the
// beginning of the prompt.
type Mask struct {
	// Group is the number of the store group, NoGroup if the group is not kept in the store.
	Group uint32
	// The mask has an entry for each chunk from First to End-1.
	First, End uint32
	// All reports whether the mask is the all-true sentinel. It has no Runs.
	All bool
	// Runs are the runs of true entries, ascending: the first chunk and the one behind the
	// last, u32 each.
	Runs []byte
}

// NoGroup is the Group of a mask of a group that is not kept in the store.
const NoGroup = ^uint32(0)

const (
	maskHeaderLen = 16
	runLen        = 8
	// allRuns is the number of runs of the all-true sentinel.
	allRuns = ^uint32(0)
)

// NumRuns returns the number of runs.
func (m *Mask) NumRuns() int { return len(m.Runs) / runLen }

// Run returns run i, in [0, NumRuns()): chunks [start, end).
func (m *Mask) Run(i int) (start, end uint32) {
	b := m.Runs[runLen*i:]
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
}

// AddRun appends the run of chunks [start, end) to the runs.
func (m *Mask) AddRun(start, end uint32) {
	m.Runs = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(m.Runs, start), end)
}

// AppendMask appends a mask to the frame of masks dst.
func AppendMask(dst []byte, m *Mask) []byte {
	runs := uint32(m.NumRuns())
	if m.All {
		runs = allRuns
	}
	for _, v := range [...]uint32{m.Group, m.First, m.End, runs} {
		dst = binary.BigEndian.AppendUint32(dst, v)
	}
	return append(dst, m.Runs...)
}

// ParseMasks calls yield with each mask of a frame of masks. The mask borrows the frame. It
// returns false if the frame is cut, or a mask's runs do not ascend within its chunks.
func ParseMasks(frame []byte, yield func(m Mask)) bool {
	for len(frame) > 0 {
		if len(frame) < maskHeaderLen {
			return false
		}
		m := Mask{
			Group: binary.BigEndian.Uint32(frame), First: binary.BigEndian.Uint32(frame[4:]),
			End: binary.BigEndian.Uint32(frame[8:]),
		}
		runs := binary.BigEndian.Uint32(frame[12:])
		frame = frame[maskHeaderLen:]
		if m.All = runs == allRuns; !m.All {
			size := int64(runs) * runLen
			if size > int64(len(frame)) {
				return false
			}
			m.Runs, frame = frame[:size:size], frame[size:]
		}
		if !m.ascends() {
			return false
		}
		yield(m)
	}
	return true
}

// ascends reports whether the runs ascend within the chunks of the mask.
func (m *Mask) ascends() bool {
	at := m.First
	for i := range m.NumRuns() {
		start, end := m.Run(i)
		if start < at || end <= start {
			return false
		}
		at = end
	}
	return at <= m.End
}
