package httpguard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The host of a request is no name that somebody else could make resolve to this machine. Beyond loopback only names
// that are listed can be told from those.
func TestHost(t *testing.T) {
	const local, listed, open = 1, 2, 4 // by which a host is taken
	hosts := []string{"hitline.example"}
	guards := map[int]Guard{local: {Local: true}, listed: {Hosts: hosts}, local | listed: {Local: true, Hosts: hosts}, open: {}}
	for host, takenBy := range map[string]int{
		"localhost": local | listed | open, "LOCALHOST:9557": local | listed | open, "127.0.0.1": local | listed | open,
		"127.0.0.1:80": local | listed | open, "[::1]:9557": local | listed | open, "[::1]": local | listed | open,
		"10.1.2.3:9557": local | listed | open, // as kubelet and Prometheus ask a pod
		"":              local | listed | open, // of no browser
		"evil.example":  open, "evil.example:9557": open, "localhost.evil.example": open, "127.0.0.1.evil.example": open,
		"localhost.": local | listed | open, "localhost.:9557": local | listed | open, "hitline.example.": listed | open,
		"localhost..": open, "evil.example.": open, "0x7f000001": open, "2130706433:9557": open, "hitline.example.evil": open, "a.hitline.example": open,
		"hitline.example": listed | open, "HITLINE.example:9557": listed | open,
	} {
		for kind, guard := range guards {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = host
			assert.Equal(t, kind&takenBy != 0, guard.Check(r) == nil, "%q with %+v", host, guard)
		}
	}
}

// A page of another origin asks for nothing, whatever the method.
func TestOrigin(t *testing.T) {
	for _, test := range []struct {
		site, origin string
		refused      bool
	}{
		{"", "", false}, // not from a page
		{"", "http://127.0.0.1:9557", false},
		{"same-origin", "http://127.0.0.1:9557", false},
		{"same-origin", "", false},
		{"none", "", false},
		{"", "http://127.0.0.1:9558", true},
		{"", "http://evil.example", true},
		{"", "null", true},
		{"cross-site", "", true},
		{"same-site", "", true},
	} {
		for _, guard := range []Guard{{Local: true}, {}, {Hosts: []string{"evil.example"}}} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
				r := request(method, "/dump", "Sec-Fetch-Site", test.site, "Origin", test.origin)
				assert.Equal(t, test.refused, guard.Check(r) != nil, "%s %+v", method, test)
				assert.Equal(t, method, r.Method)
			}
		}
	}
}

// request returns one with headers, each a name and a value; those without a value are left out.
func request(method, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:9557"
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

// A person may follow a link on another site to what costs little, as Prometheus' list of targets has them. Nothing of
// it is part of another page.
func TestLinks(t *testing.T) {
	guard := Guard{Local: true, Links: []string{"/", "/metrics"}}
	for _, test := range []struct {
		method, path, mode, dest string
		taken                    bool
	}{
		{"GET", "/", "navigate", "document", true},
		{"HEAD", "/metrics", "navigate", "document", true},
		{"GET", "/status", "navigate", "document", false},
		{"POST", "/", "navigate", "document", false},
		{"GET", "/", "navigate", "iframe", false},
		{"GET", "/metrics", "no-cors", "image", false},
		{"GET", "/metrics", "cors", "empty", false},
		{"GET", "/", "", "", false},
	} {
		for _, site := range []string{"cross-site", "same-site"} {
			r := request(test.method, test.path, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", test.mode, "Sec-Fetch-Dest", test.dest)
			assert.Equal(t, test.taken, guard.Check(r) == nil, "%s %+v", site, test)
		}
	}
	rebound := request("GET", "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	rebound.Host = "evil.example"
	assert.Error(t, guard.Check(rebound))
}

// What is refused reaches no handler. No reply can be read or kept by a page of another site.
func TestHandler(t *testing.T) {
	teapot := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	handler := (&Guard{Local: true}).Handler(http.HandlerFunc(teapot))
	for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-origin": http.StatusTeapot} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(http.MethodGet, "/any", "Sec-Fetch-Site", site))
		assert.Equal(t, want, w.Code)
		assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"))
	}
}
