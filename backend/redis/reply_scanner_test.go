package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goodReplies are streams that a scanner accepts.
var goodReplies = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":1\r\n", ":-1\r\n", ":+17\r\n", ":9223372036854775807\r\n",
	"$0\r\n\r\n", "$5\r\nhello\r\n", "$2\r\n\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n",
	"!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n", "%1\r\n+a\r\n:1\r\n", "~2\r\n:1\r\n:2\r\n", "%0\r\n:1\r\n",
	"*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n$-1\r\n*0\r\n:1\r\n",
	"*1\r\n*1\r\n*2\r\n:1\r\n*-1\r\n+done\r\n",
	strings.Repeat(":1\r\n", 100), strings.Repeat("*1\r\n", maxReplyDepth) + ":1\r\n",
	"+" + strings.Repeat("x", maxReplyLine) + "\r\n",
	"$" + strconv.Itoa(maxReplyString) + "\r\n" + strings.Repeat("x", maxReplyString) + "\r\n:1\r\n",
	"*" + strconv.Itoa(maxReplyElements-1) + "\r\n" + strings.Repeat(":1\r\n", maxReplyElements-1),
	strings.Repeat(":1\r\n", maxReplyElements),
	"%" + strconv.Itoa((maxReplyElements-1)/2) + "\r\n",
}

// badReplies are streams that a scanner refuses, and a part of its error.
var badReplies = map[string]string{
	"$2147483647\r\n": "a string of 2147483647 bytes, at most 1048576 are accepted",
	"!2147483647\r\n": "a string of 2147483647 bytes",
	"=1048577\r\n":    "a string of 1048577 bytes, at most 1048576",
	"*2147483648\r\n": "2147483649 elements in answer to one request, at most 65536",
	"~4294967296\r\n": "4294967297 elements",
	"%32768\r\n":      "65537 elements",
	"*2\r\n*65530\r\n" + strings.Repeat(":1\r\n", 65530) + "*65530\r\n":      "131063 elements",
	strings.Repeat(":1\r\n", maxReplyElements+1):                             "65537 elements",
	strings.Repeat("*0\r\n", maxReplyElements+1):                             "65537 elements",
	strings.Repeat("*1\r\n", maxReplyDepth+1):                                "nested more than 10 deep",
	strings.Repeat("*1\r\n", 10000):                                          "nested more than 10 deep",
	"+" + strings.Repeat("x", maxReplyLine+1):                                "a line of more than 16384 bytes",
	"(" + strings.Repeat("1", maxReplyLine+1):                                "a line of more than 16384 bytes",
	strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 8):      "more than 8388608 bytes in answer to one request",
	"*8\r\n" + strings.Repeat("+"+strings.Repeat("x", 16000)+"\r\n", 2) + "": "", // incomplete, and good so far
	"$-2\r\n": "not a number", "*-2\r\n": "not a number", "*-10\r\n": "not a number", "$--1\r\n": "not a number", "$-\r\n": "not a number",
	"%-1\r\n": "not a number", "=-1\r\n": "not a number", "$+5\r\n": "not a number", "$?\r\n": "not a number", "*?\r\n": "not a number",
	"$\r\n": "not a number", "$5\n": "not a number", "$5x\r\n": "not a number", "$12345678901\r\n": "more than 10 digits",
	"*00000000001\r\n": "more than 10 digits", ":\r\n": "not one of 64 bits", ":x\r\n": "not one of 64 bits", ":1-\r\n": "not one of 64 bits",
	":12345678901234567890\r\n": "not one of 64 bits", ":1\n": "not one of 64 bits", ":-\r\n": "not one of 64 bits", ":--1\r\n": "not one of 64 bits",
	"+a\nb\r\n": "does not end in CR and LF", "+a\rb\r\n": `'b' in place of '\n'`, "$2\r\nabc\r\n": `'c' in place of '\r'`, "$2\r\nab\rx": `'x' in place of '\n'`,
	"*2\r:1\r\n": `':' in place of '\n'`, ">1\r\n+x\r\n": `type '>', which RESP 2 does not have`, "|1\r\n": `type '|'`, "*1\r\n|0\r\n": `type '|'`,
	"\r\n": `unknown type '\r'`, "HTTP/1.1 200 OK\r\n": `unknown type 'H'`, "*1\r\n.\r\n": `unknown type '.'`, ";1\r\n": `unknown type ';'`,
}

// scanIn scans a stream in pieces of the given size.
func scanIn(stream []byte, size int) error {
	var s replyScanner
	for len(stream) > 0 {
		n := min(size, len(stream))
		if err := s.scan(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

func TestReplyScanner(t *testing.T) {
	for _, stream := range goodReplies {
		for _, size := range []int{1, 2, 3, 7, 4096, len(stream)} {
			require.NoError(t, scanIn([]byte(stream), size), "%.60q", stream)
		}
	}
	for stream, want := range badReplies {
		for _, size := range []int{1, 2, 3, 7, 4096, len(stream)} {
			err := scanIn([]byte(stream), size)
			if want == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, want, "%.60q in pieces of %d", stream, size)
		}
	}
}

// TestReplyScannerSplits splits streams at every byte. The verdict stays the same.
func TestReplyScannerSplits(t *testing.T) {
	check := func(stream string) {
		if len(stream) > 1000 {
			return
		}
		whole := fmt.Sprint(scanIn([]byte(stream), len(stream)))
		for at := range len(stream) {
			var s replyScanner
			err := s.scan([]byte(stream[:at]))
			if err == nil {
				err = s.scan([]byte(stream[at:]))
			}
			if err == nil {
				require.Equal(t, whole, "<nil>", "%q at %d", stream, at)
			} else {
				require.Equal(t, whole, err.Error(), "%q at %d", stream, at)
			}
		}
	}
	for _, stream := range goodReplies {
		check(stream)
		check(strings.Repeat(stream, 2))
	}
	for stream := range badReplies {
		check(stream)
		check("*1\r\n" + stream)
	}
}

// TestReplyScannerReset counts the replies to each request anew.
func TestReplyScannerReset(t *testing.T) {
	var s replyScanner
	for range 3 {
		s.reset()
		require.Nil(t, s.scan([]byte(strings.Repeat(":1\r\n", maxReplyElements))))
	}
	require.NotNil(t, s.scan([]byte(":1\r\n")))
}

// errIncomplete is the verdict of slowParse on a stream that ends within a reply.
var errIncomplete = errors.New("incomplete")

// slowParser is the straightforward reading of the rules of replyScanner.
type slowParser struct {
	in       *bufio.Reader
	elements int64
}

// slowParse returns nil or errIncomplete for a stream that replyScanner must accept.
func slowParse(stream []byte) error {
	if len(stream) > maxReplyBytes {
		return errors.New("too long")
	}
	p := &slowParser{in: bufio.NewReaderSize(bytes.NewReader(stream), 2*maxReplyLine)}
	for p.more() {
		if p.elements++; p.elements > maxReplyElements {
			return errors.New("too many")
		}
		if err := p.reply(0); err != nil {
			return err
		}
	}
	return nil
}

// more reports whether the stream goes on.
func (p *slowParser) more() bool {
	_, err := p.in.Peek(1)
	return err == nil
}

// line reads a line without CR and LF. A part of a line is returned with errIncomplete.
func (p *slowParser) line() (string, error) {
	var line []byte
	for {
		b, err := p.in.ReadByte()
		if err != nil {
			return string(line), errIncomplete
		}
		switch {
		case b == '\n':
			return "", errors.New("LF without CR")
		case b == '\r':
			switch b, err := p.in.ReadByte(); {
			case err != nil:
				return string(line) + "\r", errIncomplete
			case b != '\n':
				return "", errors.New("CR without LF")
			}
			return string(line), nil
		}
		line = append(line, b)
	}
}

// number checks digits, of which at most most are allowed, and which a line that is not
// complete may lack.
func number(text string, most int, complete bool) error {
	if text == "" && !complete {
		return nil
	}
	if text == "" || len(text) > most || strings.Trim(text, "0123456789") != "" {
		return errors.New("not a number")
	}
	return nil
}

// reply reads one reply within depth aggregates.
func (p *slowParser) reply(depth int) error {
	kind, err := p.in.ReadByte()
	if err != nil {
		return errIncomplete
	}
	if strings.IndexByte("+-_#,(:$!=*~%", kind) < 0 {
		return errors.New("unknown type")
	}
	line, end := p.line()
	if end != nil && !errors.Is(end, errIncomplete) {
		return end
	}
	text, hasCR := strings.CutSuffix(line, "\r")
	complete := end == nil || hasCR
	switch kind {
	case '+', '-', '_', '#', ',', '(':
		if len(text) > maxReplyLine {
			return errors.New("line too long")
		}
		return end
	case ':':
		if digits := strings.TrimLeft(text, "+-"); len(text)-len(digits) <= 1 {
			text = digits
		}
		if err := number(text, maxIntegerDigits, complete); err != nil {
			return err
		}
		return end
	}
	if kind == '$' || kind == '*' {
		if text == "-1" || !complete && text == "-" {
			return end
		}
	}
	if err := number(text, maxLengthDigits, complete); err != nil {
		return err
	}
	if !complete {
		return end
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	if kind == '$' || kind == '!' || kind == '=' {
		return p.body(n, end)
	}
	if kind == '%' {
		n *= 2
	}
	if p.elements += n; p.elements > maxReplyElements {
		return errors.New("too many")
	}
	if end != nil || n == 0 {
		return end
	}
	if depth == maxReplyDepth {
		return errors.New("too deep")
	}
	for range n {
		if err := p.reply(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// body reads a string of n bytes; end is the error of its header.
func (p *slowParser) body(n int64, end error) error {
	if n > maxReplyString {
		return errors.New("too long")
	}
	if end != nil {
		return end
	}
	if _, err := p.in.Discard(int(n)); err != nil {
		return errIncomplete
	}
	for _, want := range []byte("\r\n") {
		switch b, err := p.in.ReadByte(); {
		case err != nil:
			return errIncomplete
		case b != want:
			return errors.New("no CR LF")
		}
	}
	return nil
}

// checkVerdict compares the scanner with slowParse, in pieces of several sizes.
func checkVerdict(t *testing.T, stream []byte) {
	t.Helper()
	want := slowParse(stream)
	accepted := want == nil || errors.Is(want, errIncomplete)
	for _, size := range []int{len(stream) + 1, 1, 5} {
		if err := scanIn(stream, size); (err == nil) != accepted {
			t.Fatalf("%.200q in pieces of %d: %v, want %v", stream, size, err, want)
		}
	}
}

func TestReplyScannerVerdicts(t *testing.T) {
	for _, stream := range goodReplies {
		checkVerdict(t, []byte(stream))
	}
	for stream := range badReplies {
		for at := range min(len(stream), 100) {
			checkVerdict(t, []byte(stream[:at]))
		}
		checkVerdict(t, []byte(stream))
	}
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "+-:$*_#,(!=~%>|0123456789\r\n\r\nab"
	for range 200_000 {
		stream := make([]byte, random.IntN(12))
		for i := range stream {
			stream[i] = alphabet[random.IntN(len(alphabet))]
		}
		checkVerdict(t, stream)
	}
}

// FuzzReplyScanner compares the verdict of the scanner with that of slowParse.
func FuzzReplyScanner(f *testing.F) {
	for _, stream := range goodReplies {
		f.Add([]byte(stream[:min(len(stream), 100)]))
	}
	for stream := range badReplies {
		f.Add([]byte(stream[:min(len(stream), 100)]))
	}
	f.Fuzz(checkVerdict)
}

// BenchmarkReplyScanner scans the replies to a batch of 8,192 commands in reads of the size of
// the driver's.
func BenchmarkReplyScanner(b *testing.B) {
	for name, stream := range map[string]string{
		"digits":  strings.Repeat(":1\r\n", 8192),
		"counts":  strings.Repeat(":512\r\n", 8192),
		"strings": strings.Repeat("$100\r\n"+strings.Repeat("x", 100)+"\r\n", 8192),
		"array":   "*8192\r\n" + strings.Repeat(":0\r\n", 8192),
	} {
		b.Run(name, func(b *testing.B) {
			data, buffer := []byte(stream), make([]byte, 32<<10)
			var s replyScanner
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				s.reset()
				in := bytes.NewReader(data)
				for {
					n, err := in.Read(buffer)
					if errors.Is(err, io.EOF) {
						break
					}
					if s.scan(buffer[:n]) != nil {
						b.Fatal("refused")
					}
				}
			}
		})
	}
}
