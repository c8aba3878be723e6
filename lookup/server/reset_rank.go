package server

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// resetRank begins a reset_rank, or goes on with it, within the work that is left. If it fails
// done is true.
func (h *memoryHandler) resetRank(at coordinator.GroupRank) (done bool, err error) {
	s := h.session
	if h.reset == nil {
		h.reset = new(index.PlacesReset)
		if err := s.pool.service.BeginResetRank(h.reset, at); err != nil {
			return true, err
		}
	}
	worked := h.reset.Work()
	done = h.reset.Step(s.workLeft)
	s.workLeft -= h.reset.Work() - worked
	return done, nil
}

// remoteTag returns the tag as which a request is served over a backend: a reset_rank of all
// ranks is a reset.
func remoteTag(q *netproto.Request) netproto.Tag {
	if q.Tag == netproto.TagResetRank && coordinator.GroupRank(coordinator.GroupRank(q.GroupRank)).IsAny() {
		return netproto.TagReset
	}
	return q.Tag
}
