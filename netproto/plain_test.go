package netproto

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	plainName  = "engines"
	plainToken = "a-token-of-24-characters"
)

// plainCheck is the check of the Readers of these tests.
func plainCheck(username, password []byte) bool {
	return (len(username) == 0 || string(username) == plainName) && string(password) == plainToken
}

// newTestReader returns a Reader with PLAIN or without.
func newTestReader(limits Limits, plain bool) *Reader {
	r := NewReader(limits, 16)
	if plain {
		r.SetPlain(plainCheck)
	}
	return r
}

func short(s string) string { return string([]byte{byte(len(s))}) + s }

func hello(username, password string) string {
	return command("HELLO", short(username)+short(password))
}

func initiate(socketType string) string {
	return command("INITIATE", property("Socket-Type", socketType)+property("Identity", ""))
}

var (
	plainGreeting = greet(3, 1, "PLAIN")
	plainShaken   = plainGreeting + hello(plainName, plainToken) + initiate("REQ")

	saysVersion = fmt.Sprintf("control %x", "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01")
	saysNull    = fmt.Sprintf("control %x", "NULL"+strings.Repeat("\x00", 48))
	saysPlain   = fmt.Sprintf("control %x", "PLAIN"+strings.Repeat("\x00", 15)+"\x01"+strings.Repeat("\x00", 31))
	saysWelcome = fmt.Sprintf("control %x", "\x04\x08\x07WELCOME")
	saysRefusal = fmt.Sprintf("control %x", "\x04\x0a\x05ERROR\x03400")
)

func TestPlainInPiecesOfEverySize(t *testing.T) {
	traffic := command("PING", "\x00\x00ctx") + string(message("", "stat"))
	plain := []string{saysVersion, saysPlain, saysWelcome, saysReady, saysPong("ctx"), "stat env=0100 hashes="}
	for name, c := range map[string]struct {
		bytes string
		want  []string
	}{
		"3.1 REQ":           {plainShaken + traffic, plain},
		"3.0 DEALER":        {greet(3, 0, "PLAIN") + hello("", plainToken) + initiate("DEALER") + traffic, plain},
		"a later version":   {greet(9, 7, "PLAIN") + hello("", plainToken) + initiate("REQ") + traffic, plain},
		"long frames":       {plainGreeting + longCommand("HELLO", short("")+short(plainToken)) + longCommand("INITIATE", "") + traffic, plain},
		"INITIATE of 4 KiB": {plainGreeting + hello("", plainToken) + command("INITIATE", property("X-app", strings.Repeat("v", MaxCommand-9-10))) + traffic, plain},
		"NULL":              {shaken + traffic, []string{saysVersion, saysNull, saysReady, saysPong("ctx"), "stat env=0100 hashes="}},
		"raw":               {string(message("stat")) + string(message("", "stat")), []string{"stat env= hashes=", "stat env=0100 hashes="}},
	} {
		for size := range 65 {
			r := newTestReader(Limits{}, true)
			got, err := feedTo(r, []byte(c.bytes), size)
			require.NoError(t, err, "%s, pieces of %d", name, size)
			require.Equal(t, c.want, got, "%s, pieces of %d", name, size)
			require.Equal(t, name != "raw", r.ZMTP())
			require.False(t, r.InMessage())
			require.False(t, r.InHandshake())
			require.Nil(t, r.gathered)
		}
	}
}

// TestPlainAnswersAtOnce walks through the steps in which libzmq connects.
func TestPlainAnswersAtOnce(t *testing.T) {
	r, rec := newTestReader(Limits{}, true), &recorder{}
	at := 0
	for _, step := range []struct {
		bytes int // to here
		want  string
	}{
		{1, saysVersion}, {63, ""}, {64, saysPlain}, {64 + len(hello(plainName, plainToken)) - 1, ""},
		{64 + len(hello(plainName, plainToken)), saysWelcome}, {len(plainShaken) - 1, ""}, {len(plainShaken), saysReady},
	} {
		rec.lines = nil
		require.NoError(t, feedAll(r, []byte(plainShaken[at:step.bytes]), rec))
		require.Equal(t, step.want, strings.Join(rec.lines, "|"), "after %d bytes", step.bytes)
		require.Equal(t, step.bytes < len(plainShaken), r.InHandshake())
		require.False(t, r.InMessage(), "a handshake is not a request that a shutdown waits for")
		at = step.bytes
	}
	require.True(t, r.ZMTP())
}

func TestPlainRefused(t *testing.T) {
	good, most := hello(plainName, plainToken), strings.Repeat("x", 255)
	greeted := []string{saysVersion, saysPlain}
	welcomed := append(greeted[:2:2], saysWelcome)
	wrong := append(greeted[:2:2], saysRefusal)
	for name, c := range map[string]struct {
		bytes string
		want  error
		lines []string
	}{
		"2.0":                      {plainGreeting[:10] + "\x01\x03", ErrVersion, greeted[:1]},
		"signature":                {plainGreeting[:9] + "\x01", ErrGreeting, greeted[:1]},
		"CURVE":                    {greet(3, 1, "CURVE"), ErrMechanism, []string{saysVersion, saysNull}},
		"PLAINX":                   {greet(3, 1, "PLAINX"), ErrMechanism, []string{saysVersion, saysNull}},
		"wrong token":              {plainGreeting + hello(plainName, plainToken[1:]), ErrCredentials, wrong},
		"another name":             {plainGreeting + hello("ops", plainToken), ErrCredentials, wrong},
		"no token":                 {plainGreeting + hello(plainName, ""), ErrCredentials, wrong},
		"nothing":                  {plainGreeting + hello("", ""), ErrCredentials, wrong},
		"the longest":              {plainGreeting + hello(most, most), ErrCredentials, wrong},
		"all behind a wrong token": {plainGreeting + hello("", "x") + initiate("REQ") + string(message("", "stat")), ErrCredentials, wrong},
		"HELLO too long":           {plainGreeting + command("HELLO", short(most)+short(most)+"x"), ErrBadCommand, greeted},
		"HELLO of 2^64-1":          {plainGreeting + "\x06" + strings.Repeat("\xff", 8), ErrBadCommand, greeted},
		"HELLO with MORE":          {plainGreeting + "\x05" + good[1:], ErrBadCommand, greeted},
		"empty HELLO":              {plainGreeting + command("HELLO", ""), ErrBadCommand, greeted},
		"no password":              {plainGreeting + command("HELLO", short(plainName)), ErrBadCommand, greeted},
		"username cut":             {plainGreeting + command("HELLO", "\x08"+plainName), ErrBadCommand, greeted},
		"password cut":             {plainGreeting + command("HELLO", "\x00\x19"+plainToken), ErrBadCommand, greeted},
		"a byte behind":            {plainGreeting + command("HELLO", "\x00"+short(plainToken)+"x"), ErrBadCommand, greeted},
		"hello":                    {plainGreeting + command("hello", "\x00"+short(plainToken)), ErrHandshake, greeted},
		"READY for HELLO":          {plainGreeting + ready("REQ"), ErrHandshake, greeted},
		"INITIATE for HELLO":       {plainGreeting + initiate("REQ"), ErrHandshake, greeted},
		"WELCOME for HELLO":        {plainGreeting + command("WELCOME", ""), ErrHandshake, greeted},
		"PING for HELLO":           {plainGreeting + command("PING", "\x00\x00"), ErrHandshake, greeted},
		"message for HELLO":        {plainGreeting + string(message("", "stat")), ErrHandshake, greeted},
		"ERROR for HELLO":          {plainGreeting + command("ERROR", "\x03bad"), ErrPeerError, greeted},
		"reserved flags":           {plainGreeting + "\x0c\x05", ErrFlags, greeted},
		"nameless":                 {plainGreeting + "\x04\x01\x00", ErrBadCommand, greeted},
		"second HELLO":             {plainGreeting + good + good, ErrHandshake, welcomed},
		"READY for INITIATE":       {plainGreeting + good + ready("REQ"), ErrHandshake, welcomed},
		"PING for INITIATE":        {plainGreeting + good + command("PING", "\x00\x00"), ErrHandshake, welcomed},
		"message for INITIATE":     {plainGreeting + good + string(message("", "stat")), ErrHandshake, welcomed},
		"ERROR for INITIATE":       {plainGreeting + good + command("ERROR", "\x03bad"), ErrPeerError, welcomed},
		"INITIATE too long":        {plainGreeting + good + command("INITIATE", property("X", strings.Repeat("v", MaxCommand))), ErrBadCommand, welcomed},
		"property cut":             {plainGreeting + good + command("INITIATE", "\x0bSocket-Typ"), ErrProperties, welcomed},
		"PUB":                      {plainGreeting + good + initiate("PUB"), ErrSocketType, append(welcomed[:3:3], saysError)},
		"HELLO under NULL":         {greet(3, 1, "NULL") + good, ErrHandshake, []string{saysVersion, saysNull}},
		"INITIATE under NULL":      {greet(3, 1, "NULL") + initiate("REQ"), ErrHandshake, []string{saysVersion, saysNull}},
	} {
		t.Run(name, func(t *testing.T) {
			for size := range 65 {
				r := newTestReader(Limits{}, true)
				got, err := feedTo(r, []byte(c.bytes), size)
				require.ErrorIs(t, err, c.want, "pieces of %d", size)
				require.Equal(t, c.lines, got, "pieces of %d", size)
				require.Equal(t, err, feedAll(r, []byte(plainShaken), &recorder{}), "the error is final")
				require.Nil(t, r.gathered)
				var fe *FrameError
				require.ErrorAs(t, err, &fe)
				require.False(t, errors.Is(err, ErrCredentials) && fe.Len != 0, "it would tell the length of the password")
			}
		})
	}
}

// TestSecretsAreOverwritten cuts a HELLO and an auth request at every place.
func TestSecretsAreOverwritten(t *testing.T) {
	for _, b := range []string{
		plainShaken, plainGreeting + hello("", "x"+plainToken),
		string(message("auth", plainToken)), string(message("\x00id", "", "auth", plainToken)),
	} {
		for cut := range len(b) {
			first, second := []byte(b[:cut]), []byte(b[cut:])
			r := newTestReader(Limits{}, true)
			require.NoError(t, feedAll(r, first, &recorder{}))
			gathered, token := r.gathered[:cap(r.gathered)], r.req.Token[:cap(r.req.Token)]
			_ = feedAll(r, second, &recorder{})
			for i := range len(plainToken) - 3 {
				part := []byte(plainToken[i : i+4])
				require.False(t, bytes.Contains(first, part) || bytes.Contains(second, part), "what was passed, cut at %d of %q", cut, b)
				require.False(t, bytes.Contains(gathered, part) || bytes.Contains(token, part), "what was gathered, cut at %d of %q", cut, b)
			}
		}
	}
}

// TestHelloKeepsNoMoreThanItIs stops behind the header of the largest HELLO, and of one that claims
// more.
func TestHelloKeepsNoMoreThanItIs(t *testing.T) {
	r := newTestReader(Limits{}, true)
	require.NoError(t, feedAll(r, []byte(plainGreeting+"\x06"+be(8, uint64(maxHello))+"\x05"), &recorder{}))
	require.Equal(t, maxHello, cap(r.gathered))
	r = newTestReader(Limits{}, true)
	require.ErrorIs(t, feedAll(r, []byte(plainGreeting+"\x06"+be(8, uint64(maxHello)+1)), &recorder{}), ErrBadCommand)
	require.Nil(t, r.gathered)
}
