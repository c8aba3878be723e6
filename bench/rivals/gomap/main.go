// Command gomap is a lookup server to compare hitline with: a Go map behind a
// ZeroMQ REP socket of go-zeromq, which is ZeroMQ in Go alone. It serves hitline's
// lookup and store for one full-attention group.
//
// It is a module of its own, so that hitline does not depend on that library.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-zeromq/zmq4"
)

func main() {
	blockTokens := flag.Int("block-size", 16, "tokens a hash covers")
	if flag.Parse(); *blockTokens < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	err := serve(context.Background(), os.Stderr, newStore(*blockTokens))
	fmt.Fprintf(os.Stderr, "gomap: %v\n", err)
	os.Exit(1)
}

// serve answers on a free port, which it announces as hitline announces its own,
// until ctx is done or the socket fails.
func serve(ctx context.Context, log io.Writer, s *store) error {
	socket := zmq4.NewRep(ctx)
	defer socket.Close()
	if err := socket.Listen("tcp://127.0.0.1:0"); err != nil {
		return err
	}
	fmt.Fprintf(log, "{\"msg\":\"ready\",\"listen\":[\"tcp://%s\"]}\n", socket.Addr())
	for {
		request, err := socket.Recv()
		if errors.Is(err, io.EOF) { // a client left
			continue
		}
		if err != nil {
			return err
		}
		if err := socket.Send(zmq4.NewMsg(s.answer(request.Frames))); err != nil {
			return err
		}
	}
}

// hashLen is the only length of hashes that the map can hold.
const hashLen = 32

// store is the map. Not safe for concurrent use.
type store struct {
	blockTokens int
	held        map[[hashLen]byte]struct{}
}

func newStore(blockTokens int) *store {
	return &store{blockTokens: blockTokens, held: map[[hashLen]byte]struct{}{}}
}

// answer returns the reply to a request; 00 refuses it.
func (s *store) answer(frames [][]byte) []byte {
	if len(frames) != 4 || len(frames[2]) != 2 || binary.BigEndian.Uint16(frames[2]) != hashLen {
		return []byte{0}
	}
	switch blob := frames[3]; {
	case string(frames[0]) == "store":
		for ; len(blob) >= hashLen; blob = blob[hashLen:] {
			s.held[[hashLen]byte(blob)] = struct{}{}
		}
		return []byte{1}
	case string(frames[0]) == "lookup" && len(frames[1]) == 4:
		tokens := uint64(binary.BigEndian.Uint32(frames[1]))
		return binary.BigEndian.AppendUint32(nil, uint32(s.lookup(tokens, blob)))
	}
	return []byte{0}
}

// lookup returns the hit in tokens.
func (s *store) lookup(tokens uint64, blob []byte) uint64 {
	hit := uint64(0)
	block := uint64(s.blockTokens)
	for ; len(blob) >= hashLen && hit+block <= tokens; blob = blob[hashLen:] {
		if _, held := s.held[[hashLen]byte(blob)]; !held {
			break
		}
		hit += block
	}
	return hit
}
