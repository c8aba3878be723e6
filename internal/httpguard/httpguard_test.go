package httpguard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// On loopback the host of a request is no name that somebody else could make resolve to this machine.
func TestHost(t *testing.T) {
	for host, isLocal := range map[string]bool{
		"localhost": true, "LOCALHOST:9557": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]:9557": true, "[::1]": true, "10.1.2.3:9557": true,
		"evil.example": false, "evil.example:9557": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "": false,
		"localhost.": false, "0x7f000001": false, "2130706433:9557": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		assert.Equal(t, isLocal, CheckHost(r, true) == nil, host)
		assert.Equal(t, isLocal, CheckOrigin(r, true) == nil, host)
		assert.NoError(t, CheckOrigin(r, false), host)
	}
}

// A page of another origin makes no request that computes or changes something.
func TestOrigin(t *testing.T) {
	for _, test := range []struct {
		site, origin string
		refused      bool
	}{
		{"", "", false}, // not from a page
		{"", "http://127.0.0.1:9557", false},
		{"same-origin", "http://127.0.0.1:9557", false},
		{"none", "", false},
		{"", "http://127.0.0.1:9558", true},
		{"", "http://evil.example", true},
		{"", "null", true},
		{"cross-site", "", true},
		{"same-site", "", true},
	} {
		for _, local := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Host = "127.0.0.1:9557"
			if test.site != "" {
				r.Header.Set("Sec-Fetch-Site", test.site)
			}
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			assert.Equal(t, test.refused, CheckOrigin(r, local) != nil, "%+v", test)
		}
	}
}
