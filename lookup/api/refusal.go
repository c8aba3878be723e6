package api

import "github.com/hitline/hitline/coordinator"

// Refusal says why a request was not served, or only in part. It is the last frame of a reply 00 or 04, in JSON.
type Refusal struct {
	// Refusal is the code: one of the Refusal constants.
	Refusal string `json:"refusal"`
	// Request is the name of the request, "unknown" for one that is none.
	Request string `json:"request"`
	// Frame is the number of the body frame that is wrong, counted from the tag, which is 0. It is
	// missing if no single frame is.
	Frame int `json:"frame,omitempty"`
	// Limit is what RefusalTooLarge exceeds, in the unit of what is too large.
	Limit int64 `json:"limit,omitempty"`
	// Differences are those of RefusalPoolDiffers.
	Differences []coordinator.Difference `json:"differences,omitempty"`
	// Parts are those of a prompt that are not stored, with RefusalPartlyDone; at most MaxParts. MoreParts
	// counts further ones.
	Parts     []Part `json:"parts,omitempty"`
	MoreParts int    `json:"more_parts,omitempty"`
}

// The codes of a Refusal. Only RefusalBusy is worth another try without a change of the request.
const (
	// RefusalUnknownRequest says that this server knows no such request.
	RefusalUnknownRequest = "unknown_request"
	// RefusalBadRequest says that the request, or its description of a prompt or a pool, is wrong.
	RefusalBadRequest = "bad_request"
	// RefusalNoPool says that the connection has no pool, or that there is none of this name.
	RefusalNoPool = "no_pool"
	// RefusalPoolDiffers says that the pool differs from the described one.
	RefusalPoolDiffers = "pool_differs"
	// RefusalNotAllowed says that the peer has no permission for the request.
	RefusalNotAllowed = "not_allowed"
	// RefusalNotAuthenticated says that an auth request has failed: no such token, one that has
	// expired, or a listener without tokens.
	RefusalNotAuthenticated = "not_authenticated"
	// RefusalUnsupported says that this pool or store cannot do it.
	RefusalUnsupported = "unsupported"
	// RefusalTooLarge says that the request exceeds a limit.
	RefusalTooLarge = "too_large"
	// RefusalBusy says that the server holds as many requests as it may: try again.
	RefusalBusy = "busy"
	// RefusalStoreFailed says that the store behind the server has failed or did not answer in time.
	RefusalStoreFailed = "store_failed"
	// RefusalPartlyDone says that the request was done in part: of a reply 04, and of a reset.
	RefusalPartlyDone = "partly_done"
)

// Limits are what a server accepts of one connection, as a ping tells them. A client keeps to them.
type Limits struct {
	// MaxMessage is the size of the largest message in bytes, frame headers included.
	MaxMessage int64 `json:"max_message"`
	// MaxFrames is the largest number of frames of a message, envelope included.
	MaxFrames int `json:"max_frames"`
	// MaxHashes is the largest number of hashes of a lookup.
	MaxHashes int `json:"max_hashes"`
	// MaxInFlight is how many requests may have no reply yet. Those beyond it are refused as busy, or
	// the connection is closed.
	MaxInFlight int `json:"max_in_flight"`
	// MaxInFlightBytes is how many bytes of requests may have no reply yet. One larger request may be
	// sent alone.
	MaxInFlightBytes int64 `json:"max_in_flight_bytes"`
}

// Access is what a peer may do, in JSON: the reply to an auth request.
type Access struct {
	Name    string   `json:"name"`              // of the credential
	Allow   []string `json:"allow"`             // the requests that it may make
	Pools   []string `json:"pools,omitempty"`   // that it may use, "" for the server's own; missing: every pool
	Expires string   `json:"expires,omitempty"` // RFC 3339, UTC; missing: never
}
