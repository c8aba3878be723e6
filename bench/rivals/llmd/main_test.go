package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ask carries out commands and returns the replies.
func ask(t *testing.T, commands string) ([]reply, error) {
	t.Helper()
	log.SetLogger(logr.Discard())
	s, err := newSubject(12)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	failed := s.serve(strings.NewReader(commands), &out)
	var replies []reply
	for decoder := json.NewDecoder(&out); ; {
		var r reply
		if err := decoder.Decode(&r); err == io.EOF {
			return replies, failed
		} else if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, r)
	}
}

const stored = `{"store":{"holder":"a","blocks":[1,2,18446744073709551615]}}
{"store":{"holder":"b","blocks":[1,2]}} {"store":{"holder":"c","blocks":[2]}}
{"query":[1,2,18446744073709551615,4]} {"query":[4]} {"query":[1]}
`

// A holder's prefix ends at the first block that it lacks.
func TestAnswers(t *testing.T) {
	replies, err := ask(t, stored+`{"answer":0} {"answer":1} {"answer":2}`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]int{{"a": 3, "b": 2}, {}, {"a": 1, "b": 1}} {
		if got := replies[i].Prefixes; !maps.Equal(got, want) {
			t.Errorf("query %d: %v, want %v", i, got, want)
		}
	}
}

// The index forgets holders beyond ten a block unless it is told of more.
func TestManyHolders(t *testing.T) {
	var commands strings.Builder
	for c := 'a'; c < 'a'+12; c++ {
		commands.WriteString(`{"store":{"holder":"` + string(c) + `","blocks":[1]}}`)
	}
	replies, err := ask(t, commands.String()+`{"query":[1]} {"answer":0}`)
	if err != nil || len(replies[0].Prefixes) != 12 {
		t.Errorf("%v, %v", replies, err)
	}
}

func TestMeasure(t *testing.T) {
	replies, err := ask(t, stored+`{"measure":2} {"heap":true}`)
	if err != nil || replies[0].Ns <= 0 || replies[1].Heap == 0 {
		t.Errorf("%v, %v", replies, err)
	}
}

func TestBadCommands(t *testing.T) {
	for _, c := range []string{
		`{"answer":3}`, `{"answer":-1}`, `{"measure":3}`, `{"measure":-1}`, `{"store":{"holder":"a"}}`, `{}`, `{`,
	} {
		if replies, err := ask(t, stored+c); err == nil || len(replies) > 0 {
			t.Errorf("%s: %v, %v", c, replies, err)
		}
	}
}
