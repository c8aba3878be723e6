//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// fullStore is the address of a Mooncake master that has every block and leases it for an hour. See
// backend/mooncake/wire.go for its protocol.
var fullStore string

// The functions that it knows, and the types of their arguments and results.
const (
	existFunction, existType       = 0xb89fa6b0, 0x2a5f8c5c
	readyFunction, readyType       = 0x7b81bb56, 0x1cb3cc34
	replicasFunction, replicasType = 0x1f7ef174, 0x88c6276c
)

// startFullStore starts the store. It ends with the process.
func startFullStore() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("attack: cannot listen as a store: %v", err))
	}
	fullStore = listener.Addr().String()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveFullStore(conn)
		}
	}()
}

// serveFullStore answers requests until the connection ends.
func serveFullStore(conn net.Conn) {
	defer conn.Close()
	le, in := binary.LittleEndian, bufio.NewReaderSize(conn, 256*kib)
	head := make([]byte, 20)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		body := make([]byte, le.Uint32(head[12:]))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		result := storeResult(le.Uint32(head[8:]), body)
		code := byte(0)
		if result == nil {
			code = 11 // no such function
		}
		reply := append([]byte{head[0], 0, code, 0}, head[4:8]...)
		reply = le.AppendUint32(reply, uint32(len(result)))
		reply = append(le.AppendUint32(reply, 0), result...)
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// storeResult returns the result of a function, nil if there is no such function.
func storeResult(function uint32, body []byte) []byte {
	le := binary.LittleEndian
	switch function {
	case readyFunction:
		return append(le.AppendUint32(nil, readyType), "\x01\x059.8.7"...)
	case replicasFunction:
		result := append(le.AppendUint32(nil, replicasType), 1, 0) // found, and no replica
		return append(le.AppendUint64(result, 3_600_000), 0)       // lease in ms
	case existFunction:
		// A count has one byte, or what the next byte says if the last bit of the type is set.
		from, width := 4, 1
		if body[0]&1 != 0 {
			from, width = 5, 1<<(body[4]>>3)
		}
		n := 0
		for i, b := range body[from : from+width] {
			n |= int(b) << (8 * i)
		}
		result := append(le.AppendUint32(nil, existType|uint32(body[0]&1)), body[4:from+width]...)
		return append(result, bytes.Repeat([]byte{1, 1}, n)...)
	}
	return nil
}
