// Package config reads what configures hitline serve: a YAML file, then
// environment variables, then flags, each over the one before.
//
// # Strictness
//
// A mistake must not become a setting that is silently not in effect. So unknown
// and duplicate fields are refused, anchors, aliases, merge keys and tags too, a
// number is a decimal number, and of two contradictory settings neither wins.
// The reader walks the syntax tree by itself, over the fields of the types. The
// library's decoder, strict or not, truncates 1.5 to 1, takes "2" for 2 and 0123
// for 83 (and so for the text "83"), passes over a field without a value and over
// further documents, names any of several unknown fields, and has no position for
// what the text of a type is refused for.
//
// # Reference
//
// The variable reference has every field with what it may be and what it does.
// Load refuses other values by it, and a test writes docs/configuration.md from it:
// go test ./cmd/hitline/internal/config -run TestReference -update.
//
// # The environment
//
// One rule names all variables: HITLINE_ and the path in upper case, joined by
// underscores. Plain values are written as they are, the list of listen
// addresses separated by commas, and everything with structure as YAML:
//
//	HITLINE_POOL_TP_SIZE=8
//	HITLINE_LISTEN=tcp://127.0.0.1:7557,tcp://[::1]:7557
//	HITLINE_POOL_GROUPS=[{kind: full_attention, block_size: 32}]
//
// # The backend
//
// To name a backend is to choose it, even with nothing below its name. A source
// names at most one; a later source that names another replaces the choice, and
// what the earlier one said of its own is not in effect.
//
// # Glossary
//
//   - path: the names that lead to a value, joined by dots, with list positions
//     in brackets: pool.groups[1].block_size.
//   - origin: where a value came from: hitline.yaml:7:16, HITLINE_POOL_TP_SIZE or
//     --listen. Every error begins with one.
//
// # Lifetime
//
// Load runs once, at start. A Config is plain data, and safe for concurrent
// reading.
package config
