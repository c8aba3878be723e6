package compare

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hitline/hitline/bench/measure/measuretest"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// The servers must be other processes: the client blocks without telling the
// scheduler. asServer names the variable that makes this test binary one of them;
// it says what is wrong with its hitline and its Python.
const asServer = "COMPARE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	measuretest.Main(m, asServer, func(fault string) int {
		fmt.Fprintln(os.Stderr, serveAs(fault, os.Args[1:]))
		return 1
	})
}

// serveAs is this binary as the server that its arguments ask for.
func serveAs(fault string, args []string) error {
	switch args[0] {
	case "raw-server":
		size, _ := strconv.Atoi(args[1])
		return ServeRaw(os.Stderr, size)
	case "-c": // of Python: its versions
		fmt.Fprintln(os.Stdout, "fake 1.2, pyzmq 9.8, more")
		os.Exit(0)
	case "--version": // of Redis
		fmt.Fprintln(os.Stdout, "Redis server v=1.2 x")
		os.Exit(0)
	case "--bind":
		return serveRedis(args)
	case "version":
		fmt.Fprintln(os.Stdout, "fake 1.2\nmore")
		os.Exit(0)
	case "serve":
		if fault, faulty := strings.CutPrefix(fault, "hitline "); faulty {
			return serveFakeHitline(fault)
		}
		return serveHitline(16)
	case "-": // what Python is started with
		switch fault {
		case "wrong":
			return serveHitline(8)
		case "refuses":
			return serveHitline(48)
		case "none":
			return serveHitline(16)
		}
		return serveFault(fault)
	}
	return fmt.Errorf("cannot listen")
}

// serveHitline serves lookups of hashes that cover so many tokens.
func serveHitline(tokens int) error {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: tokens}})
	if err != nil {
		return err
	}
	server, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}})
	if err == nil {
		err = server.Start(context.Background())
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", server.Addrs()[0])
	<-server.Done()
	return nil
}

// serveFault is a ZeroMQ server with a fault.
func serveFault(fault string) error {
	if fault == "ends" {
		return fmt.Errorf("no luck")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if fault == "hangs" {
		select {}
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[\"tcp://%s\"]}\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_ = serveFaultTo(conn, fault)
		conn.Close()
	}
}

// serveFaultTo serves a connection that stores chains of 20 hashes, and another one until
// its first lookup.
func serveFaultTo(conn net.Conn, fault string) error {
	in := bufio.NewReader(conn)
	greeting, ready := string(zmtpGreeting), string(zmtpReady)
	switch fault {
	case "old":
		greeting = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01" + greeting[11:]
	case "not ready":
		ready = "\x04\x06\x05ERROR"
	case "no command":
		ready = "\x00\x06\x05READY"
	case "silent":
		select {}
	}
	if _, err := in.Discard(len(zmtpGreeting) + len(zmtpReady)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(greeting + ready)); err != nil {
		return err
	}
	blob := 20 * hashLen
	envelope := wire.ZMTP.Envelope()
	before, done := netproto.AppendKeys(nil, envelope, netproto.TagStore, netproto.WireRank{}, hashLen, blob), wire.ZMTP.Done()
	for { // what is stored comes on a connection of its own
		head, err := in.Peek(len(before))
		if err != nil {
			return err
		}
		if string(head) != string(before) {
			break
		}
		if _, err := in.Discard(len(before) + blob); err != nil {
			return err
		}
		if fault == "refuses to store" {
			done[len(done)-1] = 0
		}
		if _, err := conn.Write(done); err != nil {
			return err
		}
	}
	if _, err := in.Discard(len(netproto.AppendLookup(nil, envelope, 0, hashLen, blob)) + blob); err != nil {
		return err
	}
	switch fault {
	case "silent at lookups":
		select {}
	case "chatters":
		_, err := conn.Write([]byte("\x01\x00\x00\x04\x00\x00\x00\x00more"))
		return err
	}
	return nil // it closes
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

// serveEach serves each connection in a goroutine of its own. It returns when it cannot go on.
func serveEach(listener net.Listener, serve func(net.Conn)) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

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
			return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "no", nil)
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
		return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "", nil)
	case f.fault == "closes" && tenth:
		return nil
	case f.fault == "silent" && tenth:
		select {}
	case f.fault == "chatters" && tenth:
		return bytes.Repeat(netproto.AppendHit(nil, nil, uint32(hit*16)), 3) // more than are asked for at a time
	}
	return netproto.AppendHit(nil, nil, uint32(hit*16))
}
