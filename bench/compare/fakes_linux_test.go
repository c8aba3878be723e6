package compare

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// servePyzmq is lookup_client.py without Python: a REQ socket by the connections of
// this package.
func servePyzmq(args []string) error {
	number := func(flag string) int {
		for i, arg := range args {
			if arg == flag {
				n, _ := strconv.Atoi(args[i+1])
				return n
			}
		}
		return 0
	}
	chains, hashes, tokens := number("--chains"), number("--hashes"), number("--tokens")
	fmt.Println(`{"ready":true}`)
	in := bufio.NewReader(os.Stdin)
	blob := make([]byte, chains*hashes*hashLen)
	if _, err := io.ReadFull(in, blob); err != nil {
		return err
	}
	var conns []net.Conn
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var command struct {
			Connect string
			batchCommand
		}
		if err := json.Unmarshal(line, &command); err != nil {
			return err
		}
		reply := map[string]any{"socket": len(conns)}
		if command.Connect != "" {
			conn, err := dialRaw(context.Background(), wire.Server{Address: command.Connect, Dialect: wire.ZMTP, Timeout: time.Minute})
			if err != nil {
				return err
			}
			conns = append(conns, conn)
		} else if reply, err = fakeBatch(conns[command.Socket], command.batchCommand, blob, hashes, tokens); err != nil {
			return err
		}
		text, _ := json.Marshal(reply)
		fmt.Fprintf(os.Stdout, "%s\n", text)
	}
}

// fakeBatch asks for the chains of a batch.
func fakeBatch(conn net.Conn, batch batchCommand, blob []byte, hashes, tokens int) (map[string]any, error) {
	hits, ns := []uint32{}, []int64{}
	size := hashes * hashLen
	reply := make([]byte, len(zmtp.prefix)+4)
	for i, chain := range batch.Chains {
		if batch.Absent[i] != "" {
			absent, _ := hex.DecodeString(batch.Absent[i])
			copy(blob[chain*size+batch.Blocks[i]*hashLen:], absent)
		}
		start := time.Now()
		if _, err := conn.Write(append(zmtp.lookup(uint32(tokens), size), blob[chain*size:][:size]...)); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, reply); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(reply), string(zmtp.prefix)) {
			return map[string]any{"error": fmt.Sprintf("%x", reply), "bad": true}, nil
		}
		ns = append(ns, int64(time.Since(start)))
		hits = append(hits, binary.BigEndian.Uint32(reply[len(zmtp.prefix):]))
	}
	return map[string]any{"hits": hits, "ns": ns}, nil
}

// serveRedis serves the commands of Redis that this package uses.
func serveRedis(args []string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+args[3])
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "* Ready to accept connections")
	words := make(chan []string)
	replies := make(chan string)
	go func() { // owns what is stored
		set, keys := map[string]bool{}, map[string]bool{}
		for command := range words {
			replies <- fakeRedis(set, keys, command)
		}
	}()
	return serveEach(listener, func(conn net.Conn) {
		in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
		for {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			words <- command
			fmt.Fprint(out, <-replies)
			if in.Buffered() == 0 {
				out.Flush()
			}
		}
	})
}

// readCommand reads a command of RESP.
func readCommand(in *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		size, err := number()
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		command[i] = string(word[:size])
	}
	return command, nil
}

// fakeRedis returns the reply to a command.
func fakeRedis(set, keys map[string]bool, command []string) string {
	there := func(of map[string]bool, word string) string {
		if of[word] {
			return ":1\r\n"
		}
		return ":0\r\n"
	}
	switch words := command[1:]; strings.ToUpper(command[0]) {
	case "SADD":
		for _, member := range words[1:] {
			set[member] = true
		}
		return fmt.Sprintf(":%d\r\n", len(words)-1)
	case "MSET":
		for i := 0; i < len(words); i += 2 {
			keys[words[i]] = true
		}
		return "+OK\r\n"
	case "EXISTS":
		return there(keys, words[0])
	case "SMISMEMBER":
		reply := fmt.Sprintf("*%d\r\n", len(words)-1)
		for _, member := range words[1:] {
			reply += there(set, member)
		}
		return reply
	}
	return "-ERR unknown\r\n"
}

// zmtpGreeting and zmtpReady are what a server sends before the first request.
var (
	zmtpGreeting = append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"), make([]byte, 48)...)
	zmtpReady    = []byte("\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00")
)

// serveFakeHitline is a hitline with a fault.
func serveFakeHitline(fault string) error {
	listener, err := announce(os.Stderr)
	if err != nil {
		return err
	}
	f := fake{fault: fault, stored: map[string]bool{}}
	return serveEach(listener, f.serve)
}

type fake struct {
	mu      sync.Mutex
	fault   string
	stored  map[string]bool
	lookups int
}

func (f *fake) serve(conn net.Conn) {
	var have []byte
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		have = append(have, b[:n]...)
		for {
			frames, used, err := netproto.ParseMessage(have, netproto.Limits{}, nil)
			if err != nil {
				break
			}
			reply := f.reply(frames)
			have = have[used:]
			if reply == nil {
				return
			}
			_, _ = conn.Write(reply)
		}
	}
}

// reply returns the answer, nil to close the connection.
func (f *fake) reply(frames [][]byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if string(frames[0]) == "store" {
		for b := frames[3]; len(b) > 0; b = b[hashLen:] {
			f.stored[string(b[:hashLen])] = true
		}
		if f.fault == "refuses store" {
			return netproto.AppendFailed(nil, nil, "no")
		}
		return netproto.AppendDone(nil, nil, nil)
	}
	hit := 0
	for b := frames[3]; len(b) > 0 && f.stored[string(b[:hashLen])]; b = b[hashLen:] {
		hit++
	}
	whole := hit*hashLen == len(frames[3])
	f.lookups++
	switch tenth := f.lookups%10 == 0; {
	case f.fault == "wrong" && tenth:
		hit ^= 1
	case f.fault == "misses cuts" && !whole:
		hit = len(frames[3]) / hashLen
	case f.fault == "refuses" && tenth:
		return netproto.AppendFailed(nil, nil, "")
	case f.fault == "closes" && tenth:
		return nil
	case f.fault == "silent" && tenth:
		select {}
	case f.fault == "chatters" && tenth:
		reply := netproto.AppendHit(nil, nil, uint32(hit*16))
		return append(reply, reply...)
	}
	return netproto.AppendHit(nil, nil, uint32(hit*16))
}
