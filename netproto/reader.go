package netproto

import "golang.org/x/sys/cpu"

// Handler receives the requests of one connection, in order. The Request and all slices
// are borrowed: they are valid until the method returns. The methods are called from
// [Reader.Feed], on its goroutine.
type Handler interface {
	// Begin is called at the blob of a request that has one, once all frames before it are
	// read and well formed. The hashes follow. It returns false to skip them.
	Begin(q *Request) bool
	// Hashes is called with the next whole hashes of the blob, joined: at least one. It
	// returns false to skip the rest.
	Hashes(q *Request, hashes []byte) bool
	// End is called once for each request, refused ones (Problem) included. It returns false
	// to make Feed return after this message.
	End(q *Request) (more bool)
	// Dropped is called instead of End for a message of ZMTP without a delimiter after its
	// address frames. It gets no reply.
	Dropped(q *Request)
	// Control is called with protocol bytes to send to the peer at once: the
	// greeting, WELCOME, READY, ERROR or PONG of ZMTP. out is empty if a command was ignored.
	// It is called between frames, also those of one message.
	Control(out []byte)
}

// Reader decodes the requests of one connection, in either dialect, from pieces of any
// size. Call NewReader for one: the zero value is not usable. Not safe for concurrent use.
type Reader struct {
	limits    Limits
	alignment uint64

	stage    stage
	head     [maxFrameHeader]byte // the frame header being gathered
	headLen  int                  // bytes in head
	frame    FrameHeader          // the frame whose body is being read
	bodyLeft uint64               // bytes of that body not read yet
	frames   int                  // frames of this message begun
	size     int64                // bytes of this message, the begun frames counted whole
	phase    phase

	body      int              // body frames begun
	field     *field           // how the current one is read
	scratch   [maxScratch]byte // a tag, a rank or numbers
	filled    int              // bytes of it
	remainder uint64           // num_tokens modulo the alignment
	hashLen   uint64           // hash_len as sent, saturated at 64 bits
	echoSize  int              // payload bytes of a ping

	blobLeft uint64           // bytes of hashes that have not arrived and will be passed on
	carry    [MaxHashLen]byte // a hash cut by the end of a piece; between frames a PONG, during the handshake the greeting
	carryLen int              // bytes in carry

	stopped bool // End has returned false

	gathered []byte // a ZMTP command cut by the end of a piece
	ttl      uint16 // of the last PING, in tenths of a second

	checkPlain func(username, password []byte) bool // see SetPlain, nil without PLAIN

	req Request
	err error // the final error of Feed

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

// SetMaxMessage sets Limits.MaxMessage. It may be called between messages, and in Handler.End.
func (r *Reader) SetMaxMessage(bytes int64) { r.limits.MaxMessage = bytes }

// SetAlignment sets the alignment that Request.Unaligned is about, for the messages after the
// current one.
func (r *Reader) SetAlignment(alignment int) { r.alignment = uint64(max(alignment, 0)) }

// InMessage reports whether a message, or a command after the handshake, has begun and
// not ended.
func (r *Reader) InMessage() bool {
	return r.stage >= stageZMTP && (r.bodyLeft > 0 || r.headLen > 0 || r.frames > 0)
}

// InHandshake reports whether a ZMTP handshake has begun and not ended.
func (r *Reader) InHandshake() bool { return r.stage >= stageGreeting && r.stage <= stageReady }

// ZMTP reports whether the connection has completed a ZMTP handshake.
func (r *Reader) ZMTP() bool { return r.stage == stageZMTP }

// Feed consumes the next bytes of the connection and calls h. It returns how many it has
// consumed: all of p, unless End has returned false. The next call is then passed the rest.
// It borrows p until it returns. It overwrites tokens and passwords in p. An error is a
// *FrameError and final: later calls return it again.
func (r *Reader) Feed(p []byte, h Handler) (consumed int, err error) {
	r.stopped = false
	for consumed < len(p) && !r.stopped && r.err == nil {
		var n int
		n, r.err = r.read(p[consumed:], h)
		consumed += n
	}
	return consumed, r.err
}

// Held returns the bytes of memory that a Reader holds for messages: the unfinished one, and
// buffers that it keeps for the next.
func (r *Reader) Held() int { return cap(r.gathered) + r.req.held() }

// read consumes some of the next bytes and returns their number. It may be 0: the first byte
// chooses the dialect and is read again.
func (r *Reader) read(p []byte, h Handler) (int, error) {
	switch {
	case r.stage == stageNew:
		return 0, r.chooseDialect(p[0], h)
	case r.stage == stageGreeting:
		return r.readGreeting(p, h)
	case r.bodyLeft == 0:
		return r.readHeader(p, h)
	}
	p = p[:min(uint64(len(p)), r.bodyLeft)]
	r.bodyLeft -= uint64(len(p))
	if r.frame.Flags&FlagCommand != 0 {
		return len(p), r.readCommand(p, h)
	}
	if r.phase == phaseFirst {
		if err := r.decideEnvelope(p[0], h); err != nil {
			return 0, err
		}
	}
	switch {
	case r.phase == phaseBody:
		r.readBody(p, h)
	case r.frame.More(): // the last frame of a message without a delimiter is ignored
		r.req.Envelope = append(r.req.Envelope, p...)
	}
	if r.bodyLeft == 0 {
		r.endFrame(h)
	}
	return len(p), nil
}

// readHeader gathers a frame header and begins its frame. It returns the number of
// bytes consumed.
func (r *Reader) readHeader(p []byte, h Handler) (int, error) {
	if r.headLen == 0 {
		if err := r.checkFlags(p[0]); err != nil {
			return 0, err
		}
		r.head[0] = p[0]
	}
	want := frameHeaderLen(r.head[0])
	n := copy(r.head[r.headLen:want], p)
	r.headLen += n
	if r.headLen < want {
		return n, nil
	}
	r.frame, _ = ParseFrameHeader(r.head[:want])
	r.headLen = 0
	if r.frame.Flags&FlagCommand != 0 {
		return n, r.beginCommand()
	}
	return n, r.beginFrame(int64(want), h)
}

// checkFlags checks the first byte of a frame. Any frame ends the TTL. A command of ZMTP is one frame,
// and a handshake has nothing else. libzmq sends a heartbeat between the frames of a message, too.
func (r *Reader) checkFlags(flags byte) (err error) {
	r.ttl = 0
	isCommand := flags&FlagCommand != 0
	switch {
	case flags&^(FlagMore|FlagLong|FlagCommand) != 0:
		err = ErrFlags
	case isCommand && r.stage == stageRaw:
		err = ErrCommand
	case isCommand && flags&FlagMore != 0:
		err = ErrBadCommand
	case !isCommand && r.InHandshake():
		err = ErrHandshake
	default:
		return nil
	}
	return &FrameError{Err: err, Frame: r.frames, Byte: flags}
}

// beginFrame checks a frame, whose header has headerLen bytes, against the limits, and
// begins its body.
func (r *Reader) beginFrame(headerLen int64, h Handler) error {
	maxBody := r.limits.MaxMessage - r.size - headerLen
	r.frames++
	switch {
	case r.frames > r.limits.MaxFrames:
		return r.frameError(ErrFrameCount)
	case maxBody < 0 || r.frame.Size > uint64(maxBody):
		return r.frameError(ErrMessageLength)
	}
	r.size += headerLen + int64(r.frame.Size)
	r.bodyLeft = r.frame.Size
	switch r.phase {
	case phaseEnvelope:
		if err := r.beginAddress(); err != nil {
			return err
		}
	case phaseBody:
		r.beginBody(h)
	}
	if r.bodyLeft == 0 { // in phaseFirst, the first byte of the body decides
		r.endFrame(h)
	}
	return nil
}

// beginAddress begins a frame of an envelope. A message that ends in it closes a raw connection,
// as its reply would belong to no request. In ZMTP it will be dropped, as that of a DEALER that
// omits the delimiter.
func (r *Reader) beginAddress() error {
	switch {
	case r.frame.Size == 0: // the delimiter
		return nil
	case !r.frame.More() && r.stage == stageRaw:
		return r.frameError(ErrNoDelimiter)
	case !r.frame.More():
		return nil
	case r.frame.Size > MaxAddress || r.frames > MaxEnvelopeFrames: // all frames so far are addresses
		return r.frameError(ErrEnvelope)
	}
	r.req.Envelope = AppendFrameHeader(r.req.Envelope, int(r.frame.Size), true)
	return nil
}

// decideEnvelope decides by the first byte of a raw message's first frame whether there
// is an envelope: address frames begin with 00 there, tags never do.
func (r *Reader) decideEnvelope(b byte, h Handler) error {
	if b == 0x00 {
		r.phase = phaseEnvelope
		return r.beginAddress()
	}
	r.phase = phaseBody
	r.beginBody(h)
	return nil
}

// frameError returns err with the current frame.
func (r *Reader) frameError(err error) error {
	return &FrameError{Err: err, Frame: max(r.frames-1, 0), Byte: r.frame.Flags, Len: r.frame.Size}
}

// endFrame ends the current frame and, if that is its last, the message.
func (r *Reader) endFrame(h Handler) {
	switch r.phase {
	case phaseBody:
		r.endBody()
	case phaseFirst, phaseEnvelope:
		// An empty frame is the delimiter. To REP one that ends the message is none.
		if r.frame.Size == 0 && (r.frame.More() || r.stage == stageRaw) {
			r.req.Envelope = AppendFrameHeader(r.req.Envelope, 0, true)
			r.phase = phaseBody
		}
	}
	if !r.frame.More() {
		r.endMessage(h)
	}
}

// endMessage calls End or Dropped and resets the Reader for the next message.
func (r *Reader) endMessage(h Handler) {
	q := &r.req
	if r.phase == phaseBody {
		if q.Problem == nil {
			q.Problem = r.checkMissing()
		}
		r.stopped = !h.End(q)
	} else {
		h.Dropped(q)
	}
	q.reset()
	r.frames, r.size = 0, 0
	r.body, r.remainder, r.hashLen, r.echoSize = 0, 0, 0, 0
	r.carryLen, r.blobLeft = 0, 0
	r.phase = phaseFirst
	if r.stage == stageZMTP {
		r.phase = phaseEnvelope
	}
}
