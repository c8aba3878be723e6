package main

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

func lookup(tokens uint32, blob string) [][]byte {
	return [][]byte{[]byte("lookup"), binary.BigEndian.AppendUint32(nil, tokens), {0, hashLen}, []byte(blob)}
}

func storing(blob string) [][]byte {
	return [][]byte{[]byte("store"), make([]byte, 8), {0, hashLen}, []byte(blob)}
}

func hash(c string) string { return strings.Repeat(c, hashLen) }

func TestAnswer(t *testing.T) {
	s := newStore(16)
	check := func(what string, frames [][]byte, want string) {
		t.Helper()
		if got := string(s.answer(frames)); got != want {
			t.Errorf("%s: %x, want %x", what, got, want)
		}
	}
	all := hash("a") + hash("b") + hash("c")
	check("empty", lookup(48, all), "\x00\x00\x00\x00")
	check("store", storing(hash("a")+hash("b")), "\x01")
	check("two of three", lookup(48, all), "\x00\x00\x00\x20")
	check("no more than asked for", lookup(31, all), "\x00\x00\x00\x10")
	check("not from the first on", lookup(48, hash("c")+hash("a")), "\x00\x00\x00\x00")
	check("a cut hash", lookup(48, hash("a")+"bb"), "\x00\x00\x00\x10")
	check("all", storing(all), "\x01")
	check("three of three", lookup(48, all), "\x00\x00\x00\x30")
	check("too few frames", lookup(48, all)[:3], "\x00")
	check("other tag", append([][]byte{[]byte("reset")}, lookup(48, all)[1:]...), "\x00")
	check("other length of hashes", [][]byte{[]byte("lookup"), {0, 0, 0, 48}, {0, 16}, []byte(all)}, "\x00")
}

// One client after the other is served over ZeroMQ.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	log, announced := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, announced, newStore(16)) }()
	line := make([]byte, 256)
	n, err := log.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	_, addr, _ := strings.Cut(string(line[:n]), `["`)
	addr, _, _ = strings.Cut(addr, `"]`)
	for range 2 {
		client := zmq4.NewReq(ctx, zmq4.WithTimeout(20*time.Second))
		if err := client.Dial(addr); err != nil {
			t.Fatal(err)
		}
		for _, exchange := range []struct {
			frames [][]byte
			want   string
		}{{storing(hash("a")), "\x01"}, {lookup(32, hash("a")+hash("b")), "\x00\x00\x00\x10"}} {
			if err := client.Send(zmq4.NewMsgFrom(exchange.frames...)); err != nil {
				t.Fatal(err)
			}
			got, err := client.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Bytes()) != exchange.want {
				t.Errorf("%x, want %x", got.Bytes(), exchange.want)
			}
		}
		_ = client.Close()
	}
	stop()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on when it should end")
	}
}
