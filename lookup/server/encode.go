package server

import (
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// appendHit appends the reply to a lookup.
func appendHit(dst, envelope []byte, hit api.Hit) []byte {
	return appendTailBoundaries(netproto.AppendTailHit(dst, envelope, uint32(hit.Tokens), len(hit.TailBoundaries)), hit)
}

// appendTailBoundaries appends those of a hit whose tokens are in dst.
func appendTailBoundaries(dst []byte, hit api.Hit) []byte {
	for _, b := range hit.TailBoundaries {
		dst = netproto.AppendTailBoundary(dst, uint32(b.Group), uint32(b.Tokens))
	}
	return dst
}

// encodeMasks returns the frame of masks.
func encodeMasks(masks []api.GroupMask) (frame []byte) {
	for _, m := range masks {
		sent := netproto.WireMask{Group: netproto.NoGroup, First: uint32(m.First), End: uint32(m.End), All: m.All}
		if m.Group != api.NotStored {
			sent.Group = uint32(m.Group)
		}
		for _, run := range m.Runs {
			sent.Runs = append(sent.Runs, netproto.WireRun{Start: uint32(run.Start), End: uint32(run.End)})
		}
		frame = netproto.AppendMask(frame, &sent)
	}
	return frame
}
