package netproto

import "errors"

// Handler receives the requests of one connection, in order. Every slice and the
// Request are valid until the method returns.
type Handler interface {
	// Begin is called when everything in front of a lookup's, store's, evict's or
	// anchors' blob is known and well formed; the hashes follow. It returns false to have
	// them skipped.
	Begin(q *Request) bool
	// Hashes hands on the next whole hashes of the blob, at least one. It returns
	// false when the rest of them is of no interest.
	Hashes(q *Request, hashes []byte) bool
	// End is called once for each message that can be answered, Problem included.
	End(q *Request)
	// Dropped is called for a message with an envelope that has no delimiter: there
	// is no telling where its reply should go.
	Dropped(q *Request)
	// Control is called with bytes that ZMTP itself has for the peer, to be sent at
	// once: the greeting, READY, ERROR and PONG. They are empty when a command was
	// ignored. It is called between messages only.
	Control(out []byte)
}

// Reader reads the requests of one connection, in either dialect, fed in pieces
// of any size. The zero value is not usable: call NewReader. A Reader belongs to
// its connection and is not safe for concurrent use.
type Reader struct {
	limits    Limits
	alignment uint64

	stage     stage
	state     readState
	head      [maxHeader]byte // the header being gathered
	headLen   int             // bytes of it so far
	frame     frameHeader     // the frame whose body is being read
	left      uint64          // body bytes still to come
	frames    int             // frames of this message so far
	size      int64           // bytes of this message so far, announced bodies included
	phase     phase
	addresses int // address frames of the envelope so far
	body      int // body frames so far, the current one included once begun
	role      bodyRole

	blobLeft uint64           // bytes of whole hashes still to come in the blob
	skip     bool             // the rest of this frame is of no interest
	carry    [MaxHashLen]byte // a hash cut by the end of a piece; the greeting before all hashes
	carryLen int

	gathered []byte // a ZMTP command cut by the end of a piece
	ttl      uint16 // of the PING that came last, in tenths of a second

	copied uint64
	req    Request
	err    error
}

// stage is how far the dialect of the connection is settled.
type stage uint8

const (
	stageNew      stage = iota // no byte has come
	stageGreeting              // ZMTP: the peer's greeting is coming
	stageReady                 // ZMTP: its READY is to come
	stageZMTP                  // commands and messages
	stageRaw                   // messages
)

// readState is what the next byte belongs to.
type readState uint8

const (
	inFirst readState = iota // it chooses the dialect
	inGreeting
	inHeader
	inCommand
	inBody
)

// phase is where in a message the Reader stands.
type phase uint8

const (
	phaseFirst    phase = iota // the first frame decides whether there is an envelope
	phaseEnvelope              // address frames, up to the delimiter
	phaseBody
)

// NewReader returns a Reader with the given limits. alignment is the number of
// tokens that num_tokens of a lookup is checked against (Request.Unaligned); 0
// means no check.
func NewReader(limits Limits, alignment int) *Reader {
	r := &Reader{limits: limits.withDefaults(), alignment: uint64(max(alignment, 0))}
	r.req.reset()
	return r
}

// Copied returns how many bytes of hashes were copied because the end of a piece
// cut them.
func (r *Reader) Copied() uint64 { return r.copied }

// InMessage tells whether a message, or a command after the handshake, has begun
// and not ended.
func (r *Reader) InMessage() bool {
	return r.stage >= stageZMTP && (r.state != inHeader || r.headLen > 0 || r.frames > 0)
}

// InHandshake tells whether a ZMTP handshake has begun and not ended.
func (r *Reader) InHandshake() bool { return r.stage == stageGreeting || r.stage == stageReady }

// ZMTP tells whether the connection has come through a ZMTP handshake.
func (r *Reader) ZMTP() bool { return r.stage == stageZMTP }

// Begun returns the request whose Begin was called and whose End was not, nil if
// there is none: a connection that is cut then must give back what Begin took.
func (r *Reader) Begun() *Request {
	if !r.req.begun {
		return nil
	}
	return &r.req
}

// Feed reads the next bytes of the connection, all of them. p is only borrowed.
// An error is a *FrameError and final.
func (r *Reader) Feed(p []byte, h Handler) error {
	if r.err != nil {
		return r.err
	}
	for len(p) > 0 {
		if r.state == inBody {
			n := int(min(uint64(len(p)), r.left))
			if err := r.bodyBytes(p[:n], h); err != nil {
				r.err = err
				return err
			}
			p = p[n:]
			r.left -= uint64(n)
			if r.left == 0 {
				r.endFrame(h)
			}
			continue
		}
		n, err := r.between(p, h)
		if err != nil {
			r.err = err
			return err
		}
		p = p[n:]
	}
	return nil
}

// between reads what stands between the bodies of messages, and returns the bytes
// used.
func (r *Reader) between(p []byte, h Handler) (int, error) {
	switch r.state {
	case inFirst:
		return 0, r.chooseDialect(p[0], h)
	case inGreeting:
		return r.greeting(p)
	case inCommand:
		return r.commandBytes(p, h)
	}
	return r.header(p, h)
}

// header gathers a frame header and begins its frame. It returns the bytes used.
func (r *Reader) header(p []byte, h Handler) (int, error) {
	if r.headLen == 0 {
		if err := r.flags(p[0]); err != nil {
			return 0, err
		}
	}
	want := 2
	flags := p[0]
	if r.headLen > 0 {
		flags = r.head[0]
	}
	if flags&FlagLong != 0 {
		want = maxHeader
	}
	n := copy(r.head[r.headLen:want], p)
	r.headLen += n
	if r.headLen < want {
		return n, nil
	}
	var size int64
	r.frame, size, _ = decodeHeader(r.head[:want]) // whole, and its flags are checked
	r.headLen = 0
	if flags&FlagCommand != 0 {
		return n, r.beginCommand()
	}
	return n, r.beginFrame(size, h)
}

// flags checks the first byte of a frame.
func (r *Reader) flags(b byte) error {
	r.ttl = 0
	if b <= FlagMore|FlagLong && r.stage != stageReady {
		return nil
	}
	err := checkFlags(b)
	switch {
	case errors.Is(err, ErrCommand):
		err = r.commandFlags(b)
	case err == nil:
		err = ErrHandshake
	}
	if err != nil {
		return &FrameError{Err: err, Frame: r.frames, Byte: b}
	}
	return nil
}

// beginFrame checks a frame's header against the limits and settles what its
// body means.
func (r *Reader) beginFrame(header int64, h Handler) error {
	room := r.limits.MaxMessage - r.size - header
	r.frames++
	switch {
	case r.frames > r.limits.MaxFrames:
		return r.broken(ErrFrameCount)
	case room < 0 || r.frame.size > uint64(room):
		return r.broken(ErrMessageLength)
	case r.phase == phaseEnvelope && !r.addressFits():
		return r.broken(ErrEnvelope)
	}
	r.size += header + int64(r.frame.size)
	r.left = r.frame.size
	r.state = inBody
	if r.phase == phaseBody {
		r.beginBody(h)
	}
	if r.left > 0 {
		if r.phase == phaseEnvelope {
			r.beginAddress()
		}
		return nil // in phaseFirst, the first body byte decides
	}
	r.endFrame(h)
	return nil
}

// addressFits tells whether the current frame may stand in an envelope. The last
// frame of a message always may: no delimiter follows it, so the message is one to
// drop, such as that of a DEALER that forgot the delimiter.
func (r *Reader) addressFits() bool {
	return r.frame.size == 0 || !r.frame.more() || r.isAddress()
}

func (r *Reader) isAddress() bool {
	return r.frame.size <= MaxAddress && r.addresses < MaxEnvelopeFrames
}

// beginAddress appends the header of an address frame to the envelope.
func (r *Reader) beginAddress() {
	if !r.isAddress() {
		r.skip = true // of a message that will be dropped
		return
	}
	r.addresses++
	r.req.Envelope = AppendFrameHeader(r.req.Envelope, int(r.frame.size), true)
}

// beginBody settles the role of a body frame.
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

// bodyBytes consumes the next bytes of the current frame's body.
func (r *Reader) bodyBytes(p []byte, h Handler) error {
	if r.phase == phaseFirst {
		if err := r.decideEnvelope(p[0], h); err != nil {
			return err
		}
	}
	q := &r.req
	if r.phase == phaseEnvelope {
		if !r.skip {
			q.Envelope = append(q.Envelope, p...)
		}
		return nil
	}
	switch r.role {
	case roleTag:
		q.keep(q.name[:], p)
	case roleNumTokens:
		q.foldNumTokens(p, r.alignment)
	case roleHashLen:
		for _, b := range p {
			q.hashLen = foldByte(q.hashLen, b)
		}
	case rolePlace:
		q.keep(q.scratch[:groupRankChunkLen], p)
	case roleShape:
		q.keep(q.scratch[:shapeLen], p)
	case rolePrevious:
		q.keep(q.scratch[:], p)
	case roleNumbers:
		q.Anchors.Numbers = q.gather(q.Anchors.Numbers, p, 4*MaxAnchors)
	case roleDigests:
		q.Anchors.Digests = q.gather(q.Anchors.Digests, p, 8*MaxAnchors)
	case roleBlob:
		r.blob(p, h)
	case roleEcho:
		if q.Problem == nil {
			q.Echo = append(q.Echo, p...)
		}
	}
	return nil
}

// decideEnvelope reads the first byte of the first frame: address frames begin
// with 00 there, tags never do.
func (r *Reader) decideEnvelope(b byte, h Handler) error {
	if b != 0x00 {
		r.phase = phaseBody
		r.beginBody(h)
		return nil
	}
	r.phase = phaseEnvelope
	if !r.addressFits() {
		return r.broken(ErrEnvelope)
	}
	r.beginAddress()
	return nil
}

// broken wraps a sentinel with what is known of the current frame.
func (r *Reader) broken(err error) error {
	return &FrameError{Err: err, Frame: max(r.frames-1, 0), Byte: r.frame.flags, Len: r.frame.size}
}

// endFrame finishes the current frame and, with its last frame, the message.
func (r *Reader) endFrame(h Handler) {
	r.state = inHeader
	switch r.phase {
	case phaseBody:
		r.req.endBody(r.role, r.frame.size, r.alignment)
	case phaseFirst, phaseEnvelope:
		if r.frame.size == 0 && (r.frame.more() || r.stage == stageRaw) { // the delimiter; REP takes none for it that ends a message
			r.req.Envelope = AppendFrameHeader(r.req.Envelope, 0, true)
			r.phase = phaseBody
		}
	}
	if !r.frame.more() {
		r.endMessage(h)
	}
}

// endMessage hands the message on and makes the Reader ready for the next.
func (r *Reader) endMessage(h Handler) {
	r.req.finish(r.body)
	if r.phase == phaseBody {
		h.End(&r.req)
	} else {
		h.Dropped(&r.req)
	}
	r.req.reset()
	r.frames, r.size, r.addresses, r.body = 0, 0, 0, 0
	r.phase = phaseFirst
	if r.stage == stageZMTP {
		r.phase = phaseEnvelope
	}
	r.carryLen, r.blobLeft, r.skip = 0, 0, false
}
