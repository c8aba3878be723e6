package api

// Refusal is the last frame of a reply 00 to a request that the peer may not make, in JSON.
type Refusal struct {
	// Refusal is RefusalNotAllowed or RefusalNotAuthenticated.
	Refusal string `json:"refusal"`
	// Request is the name of the request.
	Request string `json:"request"`
}

// The kinds of a Refusal.
const (
	// RefusalNotAllowed says that the peer has no permission for the request.
	RefusalNotAllowed = "not_allowed"
	// RefusalNotAuthenticated says that an auth request has failed: no such token, one that has
	// expired, or a listener without tokens.
	RefusalNotAuthenticated = "not_authenticated"
)

// Access is what a peer may do, in JSON: the reply to an auth request.
type Access struct {
	Name    string   `json:"name"`              // of the credential
	Allow   []string `json:"allow"`             // the requests that it may make
	Pools   []string `json:"pools,omitempty"`   // that it may use, "" for the server's own; missing: every pool
	Expires string   `json:"expires,omitempty"` // RFC 3339, UTC; missing: never
}
