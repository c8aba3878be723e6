package statuspage

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

// Where there are credentials, a peer is told of the others and of blocks by an administrator's token
// alone.
func TestTokens(t *testing.T) {
	credential := func(name string, c access.Credential) access.Credential {
		c.Name, c.Digest = name, access.DigestOf([]byte("token of "+name))
		return c
	}
	rules, err := access.NewRules(access.All, []access.Credential{
		credential("ops", access.Credential{Permissions: access.All}),
		credential("engine", access.Credential{Permissions: access.All &^ access.Reset}),
		credential("tenant", access.Credential{Permissions: access.All, Pools: []string{""}}),
		credential("expired", access.Credential{Permissions: access.All, Expires: time.Now().Add(-time.Hour)}),
	})
	require.NoError(t, err)
	p := pageOf(t, newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}), server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0", Settings: server.Settings{Rules: rules}}},
	}, Options{})
	start(t, p)
	for _, test := range []struct {
		authorization string
		all           bool
	}{
		{"", false},
		{"Bearer token of ops", true},
		{"bearer token of ops", true},
		{"Bearer token of op", false},
		{"Bearer token of ops ", false},
		{"Bearer  token of ops", false},
		{"Bearer ", false},
		{"Bearer", false},
		{"Basic token of ops", false},
		{"token of ops", false},
		{"Bearer token of engine", false},
		{"Bearer token of tenant", false},
		{"Bearer token of expired", false},
	} {
		header := "Authorization: " + test.authorization
		st := statusOf(t, p, header)
		assert.Equal(t, !test.all, st.TokenNeeded, test.authorization)
		assert.Equal(t, test.all, st.Connections != nil, test.authorization)
		assert.Equal(t, test.all, st.Refusals != nil, test.authorization)
		assert.Len(t, st.Pools, 1, "counters are in the metrics, too")

		w := ask(p, http.MethodPost, "/explain", `{"tokens": 16, "hashes": ["00"]}`, jsonBody, header)
		want := http.StatusUnauthorized
		if test.all {
			want = http.StatusOK
		}
		assert.Equal(t, want, w.Code, "%s: %s", test.authorization, w.Body)
		given := !test.all && test.authorization != ""
		assert.Equal(t, given, strings.Contains(w.Body.String(), "this token is not"), test.authorization)
		assert.Equal(t, !test.all, w.Header().Get("WWW-Authenticate") == "Bearer", test.authorization)
	}
	assert.NotContains(t, ask(p, http.MethodGet, "/status", "").Body.String(), `"refusals"`)
	assert.NotContains(t, ask(p, http.MethodGet, "/status", "").Body.String(), `"connections":{`)
}

// A page of another site cannot ask on behalf of its reader: neither by a name that resolves to this
// machine, nor by a request across origins.
func TestOtherSites(t *testing.T) {
	service := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})
	pages := map[bool]*Page{}
	for _, local := range []bool{true, false} {
		pages[local] = pageOf(t, service, server.Config{}, Options{Local: local})
	}
	for host, isLocal := range map[string]bool{
		"localhost": true, "LOCALHOST:9557": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]:9557": true, "[::1]": true, "10.1.2.3:9557": true,
		"evil.example": false, "evil.example:9557": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "": false,
		"localhost.": false, "0x7f000001": false, "2130706433:9557": false,
	} {
		for _, path := range []string{"/", "/status"} {
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[isLocal]
			assert.Equal(t, want, ask(pages[true], http.MethodGet, path, "", "Host: "+host).Code, "%s at %q", path, host)
			assert.Equal(t, http.StatusOK, ask(pages[false], http.MethodGet, path, "", "Host: "+host).Code, "%s at %q, not on loopback", path, host)
		}
	}
	for _, test := range []struct {
		headers []string
		code    int
	}{
		{nil, http.StatusOK}, // not from a page
		{[]string{"Origin: http://127.0.0.1:9557"}, http.StatusOK},
		{[]string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:9557"}, http.StatusOK},
		{[]string{"Sec-Fetch-Site: none"}, http.StatusOK},
		{[]string{"Origin: http://127.0.0.1:9558"}, http.StatusForbidden},
		{[]string{"Origin: http://evil.example"}, http.StatusForbidden},
		{[]string{"Origin: null"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site: same-site"}, http.StatusForbidden},
	} {
		for _, p := range pages {
			w := ask(p, http.MethodPost, "/explain", `{"tokens": 16, "hashes": ["00"]}`, append(test.headers, jsonBody)...)
			assert.Equal(t, test.code, w.Code, "%q: %s", test.headers, w.Body)
		}
	}
	// Without a preflight a page of another origin can send these alone.
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "text/plain; application/json"} {
		w := ask(pages[true], http.MethodPost, "/explain", `{"tokens": 16, "hashes": ["00"]}`, "Content-Type: "+kind)
		assert.Equal(t, http.StatusUnsupportedMediaType, w.Code, kind)
	}
	assert.Equal(t, http.StatusOK, ask(pages[true], http.MethodPost, "/explain", `{}`, "Content-Type: application/json; charset=utf-8").Code)
}
