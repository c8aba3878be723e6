package lookup

import (
	"context"
	"errors"
	"unsafe"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
)

// PromptWriter is one store of a prompt whose hashes arrive in pieces. The zero value may be
// begun, by Service.BeginStorePrompt, and again at any time. What has been added is stored,
// also if no more comes. One goroutine at a time.
type PromptWriter struct {
	service   *Service
	hashLen   int
	next, end int64 // the number of the next hash, and of the one behind the last
	groups    []promptGroup
	chunks    []coordinator.StoredChunks
	ranks     []int  // that the request names, as offsets in their groups, ascending
	places    []int  // of all groups, if the request names ranks
	merged    []int  // of groups that are stored together
	keys      []byte // of one group, if they do not lie together in the hashes
	work      int
}

// promptGroup is what a PromptWriter stores of one store group.
type promptGroup struct {
	leader   int // the group that stores its blocks: its own number, or a lower one
	chunks   coordinator.StoredChunks
	stride   int64
	places   []int
	merged   []int   // over the memory index: the places of all groups that it leads
	states   []int64 // numbers of the hashes of states that are not stored yet, ascending
	named    bool    // the request says which states it has
	writer   index.Writer
	stored   int64         // chunks and states that all places hold
	failed   *partFailure  // of all places, over the memory index
	failures []partFailure // by place, over a backend; empty until one has failed
}

// partFailure is why a part was not stored.
type partFailure struct {
	err   error // nil if it has not failed
	first int64 // chunk
	lost  int64 // chunks and states
}

// hash returns the number of the hash that keys a chunk.
func (g *promptGroup) hash(chunk int64) int64 { return chunk*g.stride + g.stride - 1 }

// keptWriter bounds the memory, in bytes, of a PromptWriter that is kept for the next request:
// that of some 20 groups.
const keptWriter = 16 << 10

// reset empties the writer and retains its small buffers.
func (w *PromptWriter) reset(s *Service, hashLen int) {
	if w.Held() > keptWriter {
		*w = PromptWriter{}
	}
	clear(w.groups) // they hold what others own
	*w = PromptWriter{service: s, hashLen: hashLen, groups: w.groups[:0], chunks: w.chunks, ranks: w.ranks, places: w.places, merged: w.merged[:0], keys: w.keys}
}

// Release ends the store and releases what it holds.
func (w *PromptWriter) Release() {
	if w.service != nil {
		w.reset(nil, 0)
	}
}

// Held returns the bytes of memory that the writer holds.
func (w *PromptWriter) Held() int {
	const groupBytes, chunksBytes = int(unsafe.Sizeof(promptGroup{})), int(unsafe.Sizeof(coordinator.StoredChunks{}))
	n := cap(w.groups)*groupBytes + cap(w.chunks)*chunksBytes + 8*(cap(w.ranks)+cap(w.places)+cap(w.merged)) + cap(w.keys)
	for i := range w.groups {
		n += 8 * cap(w.groups[i].states)
	}
	return n
}

// Work returns the work since the store began, in units of comparing one hash.
func (w *PromptWriter) Work() int { return w.work }

// NumPlaces returns at how many places blocks are stored: the ranks of all groups.
func (w *PromptWriter) NumPlaces() (n int) {
	for i := range w.groups {
		n += len(w.groups[i].places)
	}
	return n
}

// WorkPerHash returns about the most work of storing what one hash keys: a key for each group,
// and a class with all places.
func (w *PromptWriter) WorkPerHash() int {
	const keyWork = 60
	places := w.NumPlaces()
	return 1 + len(w.groups)*keyWork + places + places/2
}

// Wanted reports whether any of the hashes is stored.
func (w *PromptWriter) Wanted() bool {
	for i := range w.groups {
		g := &w.groups[i]
		if _, _, stores := g.chunks.Next(0); len(g.places) > 0 && (stores || len(g.states) > 0) {
			return true
		}
	}
	return false
}

// Stored appends to dst[:0] how many chunks, states included, all ranks of each group hold.
func (w *PromptWriter) Stored(dst []int64) []int64 {
	dst = dst[:0]
	for i := range w.groups {
		dst = append(dst, w.groups[w.groups[i].leader].stored)
	}
	return dst
}

// Err returns an *api.PartsError if parts of what was added could not be stored, nil otherwise.
func (w *PromptWriter) Err() error {
	var parts api.PartsError
	for i := range w.groups {
		g := &w.groups[i]
		for j, place := range g.places {
			failure := w.groups[g.leader].failed
			if len(g.failures) > 0 {
				failure = &g.failures[j]
			}
			if failure == nil || failure.err == nil {
				continue
			}
			at := w.service.ranks.groupRank(place)
			parts.Add(api.Part{
				Group: i, TPRank: int(at.TPRank), PPRank: int(at.PPRank), PCPRank: int(at.PCPRank),
				FirstChunk: failure.first, Chunks: failure.lost,
			}, failure.err)
		}
	}
	if len(parts.Parts) == 0 {
		return nil
	}
	return &parts
}

// memoryPiece is how many hashes are stored in one group before the next: their entries are then
// still in the processor's caches.
const memoryPiece = 128

// Add stores what the next whole hashes key, borrowed until it returns. It fails if nothing
// more can be stored; a part that alone cannot be stored is an error of Err. Over the memory
// index it ignores ctx.
func (w *PromptWriter) Add(ctx context.Context, hashes []byte) error {
	piece := memoryPiece
	if w.service.remote != nil {
		piece = writeAtOnce
	}
	for piece *= w.hashLen; len(hashes) > 0; {
		n := min(piece, len(hashes))
		for i := range w.groups {
			if err := w.addToGroup(ctx, i, hashes[:n]); err != nil {
				return err
			}
		}
		w.next += int64(n / w.hashLen)
		hashes = hashes[n:]
	}
	return nil
}

// addToGroup stores the chunks and states of a group that end in a piece of the hashes.
func (w *PromptWriter) addToGroup(ctx context.Context, number int, hashes []byte) error {
	g := &w.groups[number]
	w.work += groupWork
	if len(g.places) == 0 || g.leader != number {
		return nil
	}
	end := w.next + int64(len(hashes)/w.hashLen)
	to := end / g.stride
	if start, stop, ok := g.nextRun(w.next/g.stride, to); ok {
		b := w.batchOf(g, hashes, start, stop)
		for ok { // one call for all runs
			if start, stop, ok = g.nextRun(stop, to); ok {
				w.join(g, &b, hashes, start, stop)
			}
		}
		if err := w.storeKeys(ctx, number, &b); err != nil {
			return err
		}
	}
	for len(g.states) > 0 && g.states[0] < end {
		if err := w.storeState(ctx, number, hashes); err != nil {
			return err
		}
	}
	return nil
}

// promptBatch is keys that are stored with one call.
type promptBatch struct {
	first    int64 // chunk
	n        int64
	keys     []byte
	gathered bool // the keys are in PromptWriter.keys, otherwise in the hashes
}

// nextRun returns the first run of stored chunks from one chunk on, cut at chunk to.
func (g *promptGroup) nextRun(from, to int64) (start, end int64, ok bool) {
	start, end, ok = g.chunks.Next(from)
	return start, min(end, to), ok && start < to
}

// key returns a hash of the piece by its number.
func (w *PromptWriter) key(hashes []byte, number int64) []byte {
	at := int(number-w.next) * w.hashLen
	return hashes[at : at+w.hashLen]
}

// batchOf returns a batch of chunks that end in a piece. Their keys are in place if they lie
// together there.
func (w *PromptWriter) batchOf(g *promptGroup, hashes []byte, start, end int64) promptBatch {
	b := promptBatch{first: start, n: end - start}
	if g.stride == 1 {
		b.keys = hashes[int(start-w.next)*w.hashLen : int(end-w.next)*w.hashLen]
		return b
	}
	b.n, b.gathered, w.keys = 0, true, w.keys[:0]
	w.join(g, &b, hashes, start, end)
	return b
}

// join adds the keys of further chunks to a batch.
func (w *PromptWriter) join(g *promptGroup, b *promptBatch, hashes []byte, start, end int64) {
	if !b.gathered {
		b.gathered, w.keys = true, append(w.keys[:0], b.keys...)
	}
	for chunk := start; chunk < end; chunk++ {
		w.keys = append(w.keys, w.key(hashes, g.hash(chunk))...)
	}
	b.keys, b.n = w.keys, b.n+end-start
}

// storeState stores the next state of a group, which ends in a piece.
func (w *PromptWriter) storeState(ctx context.Context, number int, hashes []byte) error {
	g := &w.groups[number]
	hash := g.states[0]
	g.states = g.states[1:]
	return w.storeKeys(ctx, number, &promptBatch{first: hash / g.stride, n: 1, keys: w.key(hashes, hash)})
}

// storeKeys stores a batch at all places of a group.
func (w *PromptWriter) storeKeys(ctx context.Context, number int, b *promptBatch) error {
	g := &w.groups[number]
	if w.service.remote != nil {
		w.storeRemote(ctx, g, b)
		return nil
	}
	if g.failed != nil {
		g.failed.lost += b.n
		return nil
	}
	worked, had := g.writer.Work(), g.writer.Stored()
	err := w.service.index.Store(&g.writer, g.merged, b.keys, w.hashLen)
	w.work += g.writer.Work() - worked
	done := int64(g.writer.Stored() - had)
	g.stored += done
	if errors.Is(err, index.ErrClasses) {
		g.failed = &partFailure{err: err, first: g.after(b.first, done), lost: b.n - done}
		return nil
	}
	return err
}

// after returns the stored chunk that is n stored ones behind another.
func (g *promptGroup) after(chunk, n int64) int64 {
	for n > 0 {
		start, end, ok := g.chunks.Next(chunk)
		if !ok {
			return chunk
		}
		if n < end-start {
			return start + n
		}
		n -= end - start
		if chunk = end; n == 0 {
			chunk, _, _ = g.chunks.Next(end)
		}
	}
	return chunk
}

// storeRemote stores a batch at one place after the other. A place that has failed is not asked
// again.
func (w *PromptWriter) storeRemote(ctx context.Context, g *promptGroup, b *promptBatch) {
	all := true
	for i, place := range g.places {
		if len(g.failures) > 0 && g.failures[i].err != nil {
			g.failures[i].lost += b.n
			all = false
			continue
		}
		err := w.service.remote.Store(ctx, w.service.ranks.groupRank(place), coordinator.NewHashes(b.keys, w.hashLen))
		if err != nil {
			if len(g.failures) == 0 {
				g.failures = make([]partFailure, len(g.places))
			}
			g.failures[i] = partFailure{err: err, first: b.first, lost: b.n}
			all = false
		}
	}
	if all {
		g.stored += b.n
	}
}
