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

// A page of another site cannot ask on behalf of its reader: see httpguard.
func TestOtherSites(t *testing.T) {
	service := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})
	local, remote := pageOf(t, service, server.Config{}, Options{Local: true}), pageOf(t, service, server.Config{}, Options{})
	for _, path := range []string{"/", "/status"} {
		assert.Equal(t, http.StatusForbidden, ask(local, http.MethodGet, path, "", "Host: evil.example").Code, path)
		assert.Equal(t, http.StatusOK, ask(remote, http.MethodGet, path, "", "Host: evil.example").Code, path)
	}
	const body = `{"tokens": 16, "hashes": ["00"]}`
	for _, p := range []*Page{local, remote} {
		assert.Equal(t, http.StatusForbidden, ask(p, http.MethodGet, "/status", "", "Sec-Fetch-Site: cross-site").Code)
		assert.Equal(t, http.StatusOK, ask(p, http.MethodPost, "/explain", body, jsonBody).Code)
		assert.Equal(t, http.StatusForbidden, ask(p, http.MethodPost, "/explain", body, jsonBody, "Origin: http://evil.example").Code)
	}
	// Without a preflight a page of another origin can send these alone.
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "text/plain; application/json"} {
		w := ask(local, http.MethodPost, "/explain", body, "Content-Type: "+kind)
		assert.Equal(t, http.StatusUnsupportedMediaType, w.Code, kind)
	}
	assert.Equal(t, http.StatusOK, ask(local, http.MethodPost, "/explain", `{}`, "Content-Type: application/json; charset=utf-8").Code)
}
