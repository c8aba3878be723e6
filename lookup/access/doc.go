// Package access says who may do what: which requests a peer may make, and about which pools. No
// promise: it is internal to this module, and its API may change in any release.
//
// # Glossary
//
//   - permission: a kind of request that a peer may make.
//   - token: a secret text that a peer sends. Rules keep its SHA-256 digest alone.
//   - credential: a token, or the name in a client certificate, with its permissions and pools.
//   - rules: the credentials of a listener, and what peers without one may do.
//   - tenant: a peer whose credential is bound to pools.
//
// Rules and credentials do not change once they are made, so they are safe for concurrent use. A
// server replaces the rules of a listener as a whole.
package access
