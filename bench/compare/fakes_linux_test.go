package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// The servers must be other processes: the client blocks without telling the
// scheduler. asServer names the variable that makes this test binary one of them;
// it says what is wrong with its hitline and its Python.
const asServer = "COMPARE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asServer); fault != "" {
		fmt.Fprintln(os.Stderr, serveAs(fault, os.Args[1:]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
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
		case "none":
			return serveHitline(16)
		case "hangs":
			select {}
		}
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

// serveFakeHitline is a hitline with a fault. It returns when it cannot go on.
func serveFakeHitline(fault string) error {
	if fault == "ends" {
		return fmt.Errorf("no luck")
	}
	listener, err := announce(os.Stderr)
	if err != nil {
		return err
	}
	f := fake{fault: fault, stored: map[string]bool{}}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			fakeserver.Answer(conn, f.reply)
		}()
	}
}

type fake struct {
	mu      sync.Mutex
	fault   string
	stored  map[string]bool
	lookups int
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
