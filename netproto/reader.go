package netproto

import (
	"errors"

	"golang.org/x/sys/cpu"
)

// Handler receives the requests of one connection, in order. The Request and all slices
// are borrowed: they are valid until the method returns. The methods are called from
// [Reader.Feed], on its goroutine. Each may call [Reader.Pause].
type Handler interface {
	// Begin is called at the blob of a lookup, explain, plan, store, evict, store_prompt or
	// holders request, once all frames before it are read and well formed. The hashes follow.
	// It returns false to skip them.
	Begin(q *Request) bool
	// Hashes is called with the next whole hashes of the blob, joined: 1 to MaxPiece of
	// them. It returns false to skip the rest. It may call [Reader.Unread].
	Hashes(q *Request, hashes []byte) bool
	// End is called once for each request, refused ones (Problem) included, and once more
	// for each [Reader.RepeatEnd] in it.
	End(q *Request)
	// Dropped is called instead of End for a message without a delimiter after its
	// address frames. It gets no reply.
	Dropped(q *Request)
	// Control is called with protocol bytes to send to the peer at once: the
	// greeting, WELCOME, READY, ERROR or PONG of ZMTP. out is empty if a command was ignored.
	// It is called between messages only.
	Control(out []byte)
}

// Reader decodes the requests of one connection, in either dialect, from pieces of any
// size. Call NewReader for one: the zero value is not usable. Not safe for concurrent use.
type Reader struct {
	limits    Limits
	alignment uint64

	stage     stage
	state     readState
	head      [maxHeader]byte // the frame header being gathered
	headLen   int             // bytes in head
	frame     frameHeader     // the frame whose body is being read
	bodyLeft  uint64          // bytes of that body not read yet
	frames    int             // frames of this message begun
	size      int64           // bytes of this message, the begun frames counted whole
	phase     phase
	addresses int // address frames of the envelope
	body      int // body frames begun
	role      bodyRole

	blobLeft uint64           // bytes of whole hashes in the blob not read yet
	skip     bool             // ignore the rest of this frame
	carry    [MaxHashLen]byte // a hash cut by the end of a piece; during the handshake, the greeting
	carryLen int              // bytes in carry

	paused    bool // Feed returns before it reads more
	unread    int  // bytes at the end of the hashes that are to be passed again
	repeatEnd bool // the message has been read, and its End is to be called again

	gathered []byte // a ZMTP command cut by the end of a piece
	ttl      uint16 // of the last PING, in tenths of a second

	checkPlain func(username, password []byte) bool // see SetPlain, nil without PLAIN

	copied uint64 // bytes of hashes copied to carry
	req    Request
	err    error // the final error of Feed

	_ cpu.CacheLinePad // the next Reader may be used on another core
}

// stage is the connection's dialect and, in ZMTP, the part of its handshake.
type stage uint8

const (
	stageNew      stage = iota // no byte has arrived
	stageGreeting              // ZMTP: reading the peer's greeting
	stageHello                 // ZMTP: waiting for the peer's HELLO
	stageInitiate              // ZMTP: waiting for the peer's INITIATE
	stageReady                 // ZMTP: waiting for the peer's READY
	stageZMTP                  // ZMTP: commands and messages
	stageRaw                   // raw dialect: messages
)

// readState is what the next byte belongs to.
type readState uint8

const (
	inFirst readState = iota // the connection's first byte, which chooses the dialect
	inGreeting
	inHeader
	inCommand
	inBody
)

// phase is the part of a message that is being read.
type phase uint8

const (
	phaseFirst    phase = iota // the first frame decides whether there is an envelope
	phaseEnvelope              // address frames, up to the delimiter
	phaseBody
)

// NewReader returns a Reader with the given limits. Request.Unaligned reports a
// num_tokens that is not a multiple of alignment, in tokens; 0 means no check.
func NewReader(limits Limits, alignment int) *Reader {
	r := &Reader{limits: limits.withDefaults(), alignment: uint64(max(alignment, 0))}
	r.req.reset()
	return r
}

// SetAlignment sets the alignment that Request.Unaligned is about, for the messages after the
// current one.
func (r *Reader) SetAlignment(alignment int) { r.alignment = uint64(max(alignment, 0)) }

// Copied returns the total bytes of hashes that were copied because the end of a piece
// cut them.
func (r *Reader) Copied() uint64 { return r.copied }

// InMessage reports whether a message, or a command after the handshake, has begun and
// not ended.
func (r *Reader) InMessage() bool {
	return r.stage >= stageZMTP && (r.state != inHeader || r.headLen > 0 || r.frames > 0)
}

// InHandshake reports whether a ZMTP handshake has begun and not ended.
func (r *Reader) InHandshake() bool { return r.stage >= stageGreeting && r.stage <= stageReady }

// ZMTP reports whether the connection has completed a ZMTP handshake.
func (r *Reader) ZMTP() bool { return r.stage == stageZMTP }

// Feed consumes the next bytes of the connection and calls h. It returns how many it has
// consumed: all of p, unless h has called Pause, Unread or RepeatEnd. The next call then goes on:
// it is passed the bytes that were left, and they may be none. It borrows p until it returns.
// It overwrites tokens and passwords in p. An error is a *FrameError and final: later calls
// return it again.
func (r *Reader) Feed(p []byte, h Handler) (consumed int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	r.paused = false
	if r.repeatEnd {
		r.endMessage(h)
	}
	for consumed < len(p) && !r.paused {
		n, err := r.read(p[consumed:], h)
		if consumed += n; err != nil {
			r.err = err
			return consumed, err
		}
	}
	return consumed, nil
}

// Pause makes Feed return as soon as the method that calls it has. The bytes behind are not
// consumed. Only methods of the Handler call it.
func (r *Reader) Pause() { r.paused = true }

// Unread makes Feed pause, and later pass the last n bytes of these hashes to Hashes again. Only
// Hashes calls it; n is a whole number of hashes. If Hashes returns false, they are skipped with
// the rest.
func (r *Reader) Unread(n int) { r.paused, r.unread = true, n }

// RepeatEnd makes Feed pause, and call End again for the same request when it goes on. Only End
// calls it.
func (r *Reader) RepeatEnd() { r.paused, r.repeatEnd = true, true }

// Held returns the bytes of memory that a Reader holds for messages: the unfinished one, and
// buffers that it keeps for the next.
func (r *Reader) Held() int { return cap(r.gathered) + r.req.held() }

// read consumes some of the next bytes, at least one unless paused, and returns their number.
func (r *Reader) read(p []byte, h Handler) (int, error) {
	if r.state != inBody {
		return r.readOutsideBody(p, h)
	}
	p = p[:min(uint64(len(p)), r.bodyLeft)]
	n, err := r.readBody(p, h)
	if err != nil {
		return n, err
	}
	if r.bodyLeft -= uint64(n); r.bodyLeft == 0 {
		r.endFrame(h)
	}
	return n, nil
}

// readOutsideBody reads bytes that do not belong to a message frame's body, and returns
// the number consumed.
func (r *Reader) readOutsideBody(p []byte, h Handler) (int, error) {
	switch r.state {
	case inFirst:
		return 0, r.chooseDialect(p[0], h)
	case inGreeting:
		return r.readGreeting(p, h)
	case inCommand:
		return r.readCommand(p, h)
	}
	return r.readHeader(p, h)
}

// readHeader gathers a frame header and begins its frame. It returns the number of
// bytes consumed.
func (r *Reader) readHeader(p []byte, h Handler) (int, error) {
	if r.headLen == 0 {
		if err := r.checkFirstByte(p[0]); err != nil {
			return 0, err
		}
	}
	want := 2
	flags := p[0]
	if r.headLen > 0 {
		flags = r.head[0]
	}
	if flags&flagLong != 0 {
		want = maxHeader
	}
	n := copy(r.head[r.headLen:want], p)
	r.headLen += n
	if r.headLen < want {
		return n, nil
	}
	var size int64
	r.frame, size, _ = decodeHeader(r.head[:want]) // cannot fail: the header is whole
	r.headLen = 0
	if flags&flagCommand != 0 {
		return n, r.beginCommand()
	}
	return n, r.beginFrame(size, h)
}

// checkFirstByte checks the flags byte that begins a frame. Any frame ends the TTL.
func (r *Reader) checkFirstByte(b byte) error {
	r.ttl = 0
	if b <= flagMore|flagLong && !r.InHandshake() {
		return nil
	}
	err := checkFlags(b)
	switch {
	case errors.Is(err, ErrCommand):
		err = r.checkCommandFlags(b)
	case err == nil:
		err = ErrHandshake
	}
	if err != nil {
		return &FrameError{Err: err, Frame: r.frames, Byte: b}
	}
	return nil
}

// beginFrame checks a frame, whose header has headerLen bytes, against the limits, and
// begins its body.
func (r *Reader) beginFrame(headerLen int64, h Handler) error {
	maxBody := r.limits.MaxMessage - r.size - headerLen
	r.frames++
	switch {
	case r.frames > r.limits.MaxFrames:
		return r.frameError(ErrFrameCount)
	case maxBody < 0 || r.frame.size > uint64(maxBody):
		return r.frameError(ErrMessageLength)
	case r.phase == phaseEnvelope && !r.addressFits():
		return r.frameError(ErrEnvelope)
	}
	r.size += headerLen + int64(r.frame.size)
	r.bodyLeft = r.frame.size
	r.state = inBody
	if r.phase == phaseBody {
		r.beginBody(h)
	}
	if r.bodyLeft > 0 {
		if r.phase == phaseEnvelope {
			r.beginAddress()
		}
		return nil // in phaseFirst, the first body byte decides
	}
	r.endFrame(h)
	return nil
}

// addressFits reports whether the current frame is within the limits of an envelope. The
// last frame of a message always is: the message then has no delimiter, as that of a
// DEALER that omits it, and will be dropped.
func (r *Reader) addressFits() bool {
	return r.frame.size == 0 || !r.frame.more() || r.isAddress()
}

// isAddress reports whether the current frame can be one more address frame.
func (r *Reader) isAddress() bool {
	return r.frame.size <= MaxAddress && r.addresses < MaxEnvelopeFrames
}

// beginAddress appends the header of an address frame to the envelope.
func (r *Reader) beginAddress() {
	if !r.isAddress() {
		r.skip = true // the message will be dropped
		return
	}
	r.addresses++
	r.req.Envelope = AppendFrameHeader(r.req.Envelope, int(r.frame.size), true)
}

// beginBody sets the role of a body frame.
func (r *Reader) beginBody(h Handler) {
	r.role = r.req.roleOf(r.body)
	r.body++
	r.req.filled = 0
	switch r.role {
	case roleBlob:
		r.beginBlob(h)
	case roleEcho:
		r.req.echoHeader(r.frame.size)
	}
}

// readBody consumes bytes of the current frame's body: all of p, except in a blob. It returns
// their number.
func (r *Reader) readBody(p []byte, h Handler) (int, error) {
	if r.phase == phaseFirst {
		if err := r.decideEnvelope(p[0], h); err != nil {
			return 0, err
		}
	}
	switch {
	case r.phase == phaseEnvelope:
		if !r.skip {
			r.req.Envelope = append(r.req.Envelope, p...)
		}
	case r.role == roleBlob:
		return r.readBlob(p, h), nil
	default:
		r.readField(p)
	}
	return len(p), nil
}

// readField consumes p, the next bytes of a body frame that is no blob.
func (r *Reader) readField(p []byte) {
	q := &r.req
	switch r.role {
	case roleTag:
		q.fill(q.name[:], p)
	case roleNumTokens:
		q.foldNumTokens(p, r.alignment)
	case roleHashLen:
		for _, b := range p {
			q.hashLen = foldByte(q.hashLen, b)
		}
	case roleGroupRank:
		q.fill(q.scratch[:groupRankLongLen], p)
	case rolePromptNumbers:
		q.fill(q.scratch[:maxPromptNumbers], p)
	case roleRanks:
		q.Prompt.Ranks = q.appendBounded(q.Prompt.Ranks, p, rankLen*MaxRanks, ErrRanks)
	case roleStates:
		q.Prompt.States = q.appendBounded(q.Prompt.States, p, stateLen*MaxStates, ErrStates)
	case roleEcho:
		if q.Problem == nil {
			q.Echo = append(q.Echo, p...)
		}
	case roleDescription:
		if r.frame.size <= MaxDescription {
			q.Description = append(q.Description, p...)
		}
	case roleHoldersQuery:
		if r.frame.size <= MaxHoldersQuery {
			q.HoldersQuery = append(q.HoldersQuery, p...)
		}
	case roleToken:
		if r.frame.size <= MaxToken {
			if q.Token == nil {
				q.Token = make([]byte, 0, MaxToken) // growing would leave copies
			}
			q.Token = append(q.Token, p...)
			clear(p)
		}
	}
}

// decideEnvelope decides by the first byte of a raw message's first frame whether there
// is an envelope: address frames begin with 00 there, tags never do.
func (r *Reader) decideEnvelope(b byte, h Handler) error {
	if b != 0x00 {
		r.phase = phaseBody
		r.beginBody(h)
		return nil
	}
	r.phase = phaseEnvelope
	if !r.addressFits() {
		return r.frameError(ErrEnvelope)
	}
	r.beginAddress()
	return nil
}

// frameError returns err with the current frame.
func (r *Reader) frameError(err error) error {
	return &FrameError{Err: err, Frame: max(r.frames-1, 0), Byte: r.frame.flags, Len: r.frame.size}
}

// endFrame ends the current frame and, if that is its last, the message.
func (r *Reader) endFrame(h Handler) {
	r.state = inHeader
	switch r.phase {
	case phaseBody:
		r.req.endBody(r.role, r.frame.size)
	case phaseFirst, phaseEnvelope:
		// An empty frame is the delimiter. To REP one that ends the message is none.
		if r.frame.size == 0 && (r.frame.more() || r.stage == stageRaw) {
			r.req.Envelope = AppendFrameHeader(r.req.Envelope, 0, true)
			r.phase = phaseBody
		}
	}
	if !r.frame.more() {
		r.endMessage(h)
	}
}

// endMessage calls End or Dropped and resets the Reader for the next message, unless End is
// to be called again.
func (r *Reader) endMessage(h Handler) {
	if !r.repeatEnd {
		r.req.finish(r.body)
	}
	r.repeatEnd = false
	if r.phase == phaseBody {
		h.End(&r.req)
	} else {
		h.Dropped(&r.req)
	}
	if r.repeatEnd {
		return
	}
	r.req.reset()
	r.frames, r.size, r.addresses, r.body = 0, 0, 0, 0
	r.phase = phaseFirst
	if r.stage == stageZMTP {
		r.phase = phaseEnvelope
	}
	r.carryLen, r.blobLeft, r.skip = 0, 0, false
}
