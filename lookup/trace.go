package lookup

import (
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// traceStage is what a query by anchors does next to find the blocks that the anchors prove.
type traceStage uint8

const (
	stageKeys    traceStage = iota // the hashes of the anchors arrive
	stageProbe                     // the anchors are looked up
	stageTrace                     // their chains are followed to the front
	stageConfirm                   // links are confirmed that the request's digests prove
	stageApply                     // the bits of the blocks are set
	stageTraced                    // nothing is left to do
)

const (
	// anchorPiece is how many anchors are looked up before the work is checked again.
	anchorPiece = 256
	// probeWork is the work of looking up a hash through the index's table.
	probeWork = 32
	// traceWork is the work of one Trace or ResumeTrace: some 20 microseconds.
	traceWork = 8192
	// digestWork is the work of adding a hash to a digest.
	digestWork = 4
	// applyWork is the work of setting the bits of a run.
	applyWork = 16
)

// beginTrace begins the stages behind stageKeys.
func (q *Query) beginTrace() {
	a := q.anchored
	a.stage, a.retraced, a.tracing = stageProbe, false, false
	a.cursor.Quiet = true
	q.service.index.Begin(&a.cursor, q.hashLen)
}

// traceSome goes through the stages within the work that is left. It returns false if there
// is more to do.
func (q *Query) traceSome() (done bool) {
	a := q.anchored
	for a.stage != stageTraced {
		if *q.workLeft <= 0 {
			return false
		}
		switch a.stage {
		case stageProbe:
			q.probeAnchors()
		case stageTrace:
			q.traceAnchor()
		case stageConfirm:
			q.confirmAnchor()
		case stageApply:
			q.applyTrail()
		}
	}
	return true
}

// probeAnchors looks up the next anchors themselves. If a full-attention group lacks one,
// nothing far behind it can change the answer.
func (q *Query) probeAnchors() {
	a := q.anchored
	n := min(a.request.Len()-len(a.present), anchorPiece)
	*q.workLeft -= n * probeWork
	for keys := a.keys[len(a.present)*q.hashLen:][:n*q.hashLen]; len(keys) > 0; {
		filled, covered, _ := q.service.index.Probe(&a.cursor, keys, 1, q.runs[:], false)
		for _, run := range q.runs[:filled] {
			for range run.N {
				q.checkAnchor(a.request.Number(len(a.present)), run.Coverage)
				a.present = append(a.present, run.Coverage != nil)
			}
		}
		keys = keys[covered*q.hashLen:]
	}
	if len(a.present) == a.request.Len() {
		a.cursor.Drop()
		q.beginTraceStage()
	}
}

// beginTraceStage begins stageTrace with the last anchor.
func (q *Query) beginTraceStage() {
	a := q.anchored
	a.stage, a.at, a.below = stageTrace, a.request.Len()-1, uint32(min(q.limit, q.numHashes))
}

// traceAnchor follows the chain of the next anchor to the front. The stage ends at the first
// whose chain reaches block 0. That anchor is the top.
func (q *Query) traceAnchor() {
	a := q.anchored
	*q.workLeft -= probeWork
	if a.at < 0 {
		a.proven, a.top = 0, -1
		q.endTraceStage()
		return
	}
	number := a.request.Number(a.at)
	if a.present[a.at] && (a.tracing || number < a.below) {
		down, done := q.traceMore(number)
		if a.tracing = !done; a.tracing {
			return
		}
		if a.below = down; down == 0 {
			a.proven = int(number) + 1
			a.claimed = max(a.claimed, a.proven)
			a.top = a.at
			q.endTraceStage()
			return
		}
	}
	a.at--
}

// traceMore begins the trace of anchor a.at, block number of its chain, or goes on with it. It
// returns what Trace does.
func (q *Query) traceMore(number uint32) (down uint32, done bool) {
	x, a := q.service.index, q.anchored
	before := a.trail.Work()
	defer func() { *q.workLeft -= a.trail.Work() - before }()
	if a.tracing {
		return x.ResumeTrace(&a.trail, traceWork)
	}
	return x.Trace(&a.trail, a.anchor(q, a.at), number, traceWork)
}

// endTraceStage begins the stage behind stageTrace.
func (q *Query) endTraceStage() {
	a := q.anchored
	if a.retraced {
		q.beginApply()
		return
	}
	a.stage, a.at, a.next, a.confirmedTo = stageConfirm, a.top+1, uint32(a.proven), a.top
}

// confirmAnchor goes on to the next anchor along links that no lookup has confirmed, and
// confirms them if the request's digests prove them.
func (q *Query) confirmAnchor() {
	a := q.anchored
	if a.at < a.request.Len() && q.recite(a.at) {
		a.at++
		return
	}
	if a.retraced = true; a.confirmedTo > a.top {
		q.beginTraceStage()
		return
	}
	q.beginApply()
}

// recite reads what the index says of the blocks behind the anchor before i, up to i. It
// returns false if that is not known, or if the request's digest differs.
func (q *Query) recite(i int) bool {
	a := q.anchored
	number := a.request.Number(i)
	if !a.present[i] || uint64(number) >= uint64(q.limit) {
		return false
	}
	var before []byte
	if i > 0 {
		before = a.anchor(q, i-1)
	}
	worked := a.trail.Work()
	keys, ok := q.service.index.Recite(&a.trail, before, a.anchor(q, i), number, int(number-a.next)+1)
	*q.workLeft -= probeWork + a.trail.Work() - worked
	if !ok {
		return false
	}
	if digest, given := a.request.Digest(i); given {
		*q.workLeft -= len(keys) / q.hashLen * digestWork
		if digest != netproto.Digest(keys) {
			return false
		}
		_, work := q.service.index.Confirm(a.next, before, keys, q.hashLen)
		*q.workLeft -= work
		a.confirmedTo = i
	}
	a.next = number + 1
	a.claimed = int(a.next)
	return true
}

// beginApply begins stageApply with the first run of the chain.
func (q *Query) beginApply() {
	a := q.anchored
	a.stage, a.at = stageApply, len(a.trail.Runs)-1
	if a.top < 0 {
		a.at = -1
	}
}

// applyTrail sets the bits of the next run of blocks that the index has traced.
func (q *Query) applyTrail() {
	a := q.anchored
	if a.at >= 0 {
		*q.workLeft -= applyWork * len(q.scans)
		q.applyRun(a.trail.Runs[a.at])
		a.at--
		return
	}
	a.trail.Taken()
	q.seek(int(min(uint64(a.request.First), uint64(q.numHashes)+1))) // an int may have 32 bits
	a.stage = stageTraced
}

// applyRun sets the bits of consecutive blocks.
func (q *Query) applyRun(run index.TrailRun) {
	for i := range q.scans {
		scan := &q.scans[i]
		from := int64(int(run.From) / scan.receivedStride)
		to := min(int64(int(run.From+run.N)/scan.receivedStride), int64(scan.positions))
		for from < to {
			start, end, ok := scan.mask.Next(from)
			if !ok || start >= to {
				break
			}
			from = min(end, to)
			scan.position = int(start)
			q.apply(scan, index.Run{N: int(from - start), Coverage: run.Coverage})
		}
	}
}
