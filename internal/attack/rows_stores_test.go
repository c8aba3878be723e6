//go:build linux && hitline_attack

package attack

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// storeRows are stores that answer the server wrong. The attacking process is the store, and
// makes lookups so that the server asks it.
func storeRows() []row {
	redis := func(scheme string) serverSpec {
		return serverSpec{
			env:       []string{"HITLINE_POOL={model_name: m}", "HITLINE_BACKEND={redis: {url: '" + scheme + "://FAKE'}}"},
			addrSpace: 5500000,
		}
	}
	mooncake := serverSpec{env: []string{"HITLINE_POOL={model_name: m}", "HITLINE_BACKEND={mooncake: {masters: [FAKE]}}"}, addrSpace: 5500000}
	rows := []row{
		{name: "redis-string", what: "a Redis that announces strings of 2 GB, to a server with ulimit -v 5500000", spec: redis("redis"), fake: fakeRedis(answerGiant("$2147483647\r\n"))},
		{name: "redis-array", what: "a Redis that announces arrays of 2,147,483,647 elements", spec: redis("redis"), fake: fakeRedis(answerGiant("*2147483647\r\n"))},
		{name: "redis-line", what: "a Redis that answers with a line without end", spec: redis("redis"), fake: fakeRedis(answerEndless)},
		{name: "redis-moved", what: "a Redis cluster node that answers MOVED, to itself", spec: redis("redis-cluster"), fake: fakeRedis(answerRedirect("MOVED"))},
		{name: "redis-ask", what: "a Redis cluster node that answers ASK, to itself", spec: redis("redis-cluster"), fake: fakeRedis(answerRedirect("ASK"))},
		{name: "mooncake-length", what: "a Mooncake master that announces replies of 4 GB", spec: mooncake, fake: fakeMaster(masterGiant)},
		{name: "mooncake-wrong", what: "a Mooncake master whose replies are random bytes in a right frame", spec: mooncake, fake: fakeMaster(masterWrong)},
		{name: "mooncake-endless", what: "a Mooncake master that sends random bytes without end", spec: mooncake, fake: fakeMaster(masterEndless)},
	}
	for i := range rows {
		rows[i].want, rows[i].prepare = zero, onConns(4, lookUpMeanwhile)
	}
	return rows
}

// lookUpMeanwhile makes lookups, one after the other on each connection.
func lookUpMeanwhile(a *attacker, conns []net.Conn) {
	var next atomic.Int64
	a.forDuration(len(conns), func(i int) bool {
		hashes := randomBytes(fmt.Sprint("asked ", next.Add(1)), 64*32)
		_ = conns[i].SetReadDeadline(time.Now().Add(burstTimeout)) // it may be lost
		return a.write(conns[i], lookup(hashes, 32), 1) && a.read(conns[i], 1)
	})
}

// serveAll accepts connections of a fake store and serves each.
func serveAll(listener net.Listener, fake fakeStore) {
	for {
		conn, err := listener.Accept()
		if err != nil { // the process has no descriptors left
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer conn.Close()
			fake(conn, listener.Addr().String())
		}()
	}
}

// redisAnswer answers a command for keys. It returns false to end the connection.
type redisAnswer func(conn net.Conn, addr string, command []string) bool

// fakeRedis is a Redis that answers right what a client asks first, and by answer what concerns
// keys. On every second connection answer replies to the first command too.
func fakeRedis(answer redisAnswer) fakeStore {
	var accepted atomic.Int64
	return func(conn net.Conn, addr string) {
		atOnce := accepted.Add(1)%2 == 0
		in := bufio.NewReader(conn)
		for {
			command, err := readRedis(in)
			if err != nil {
				return
			}
			reply, known := redisReply(command, addr)
			if !known || atOnce {
				if !answer(conn, addr, command) {
					return
				}
			} else if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}
}

// readRedis reads a command: an array of strings.
func readRedis(in *bufio.Reader) ([]string, error) {
	n, err := readRedisCount(in, '*')
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		size, err := readRedisCount(in, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	return command, nil
}

// readRedisCount reads a line of kind and a number.
func readRedisCount(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || line[0] != kind || n < 0 || n > 1<<24 {
		return 0, fmt.Errorf("attack: the server sent %q to a fake Redis", line)
	}
	return n, nil
}

// redisReply is the right reply to a command that concerns no keys; known is false for others.
func redisReply(command []string, addr string) (reply string, known bool) {
	if len(command) == 0 {
		return "", false
	}
	host, port, _ := net.SplitHostPort(addr)
	switch strings.ToUpper(command[0]) {
	case "HELLO":
		return "-ERR unknown command 'HELLO'\r\n", true
	case "PING":
		return "+PONG\r\n", true
	case "CLIENT", "SELECT", "READONLY", "ASKING", "AUTH":
		return "+OK\r\n", true
	case "COMMAND":
		return "*0\r\n", true
	case "INFO":
		const info = "redis_version:7.2.0\r\nredis_mode:standalone\r\n"
		return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info), true
	case "CLUSTER":
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n%040d\r\n", len(host), host, port, 1), true
	}
	return "", false
}

// answerGiant announces a giant reply and sends its first bytes.
func answerGiant(header string) redisAnswer {
	return func(conn net.Conn, _ string, _ []string) bool {
		_, err := io.WriteString(conn, header+strings.Repeat(":1\r\n", 1000))
		return err == nil
	}
}

// answerEndless sends a line that does not end.
func answerEndless(conn net.Conn, _ string, _ []string) bool {
	_, err := io.WriteString(conn, "+")
	for line := strings.Repeat("a", 64*kib); err == nil; {
		_, err = io.WriteString(conn, line)
	}
	return false
}

// answerRedirect sends the client to the same node again.
func answerRedirect(kind string) redisAnswer {
	return func(conn net.Conn, addr string, _ []string) bool {
		_, err := fmt.Fprintf(conn, "-%s 1 %s\r\n", kind, addr)
		return err == nil
	}
}

// fakeMaster is a Mooncake master that answers each request by answer, which gets the header of
// the request and returns false to end the connection.
func fakeMaster(answer func(conn net.Conn, header []byte) bool) fakeStore {
	return func(conn net.Conn, _ string) {
		in := bufio.NewReader(conn)
		header := make([]byte, 20)
		for {
			if _, err := io.ReadFull(in, header); err != nil {
				return
			}
			body := int64(binary.LittleEndian.Uint32(header[12:])) + int64(binary.LittleEndian.Uint32(header[16:]))
			if _, err := io.CopyN(io.Discard, in, body); err != nil || !answer(conn, header) {
				return
			}
		}
	}
}

// masterHeader is the header of a reply to a request, whose body has so many bytes.
func masterHeader(request []byte, code byte, body uint32) []byte {
	b := append([]byte{request[0], 0, code, 0}, request[4:8]...)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, body), 0)
}

// masterGiant announces a giant body: that of a result and that of an error, alternately.
func masterGiant(conn net.Conn, request []byte) bool {
	code := byte(0)
	if request[4]%2 == 1 { // its number
		code = 10
	}
	_, err := conn.Write(append(masterHeader(request, code, 1<<32-1), make([]byte, 4*kib)...))
	return err == nil
}

// masterWrong sends a body of random bytes.
func masterWrong(conn net.Conn, request []byte) bool {
	body := randomBytes(string(request[4:8]), 4+int(request[4]))
	_, err := conn.Write(append(masterHeader(request, 0, uint32(len(body))), body...))
	return err == nil
}

// masterEndless sends bytes without end.
func masterEndless(conn net.Conn, request []byte) bool {
	_, err := conn.Write(masterHeader(request, 0, 64))
	for b := randomBytes("endless", 64*kib); err == nil; {
		_, err = conn.Write(b)
	}
	return false
}
