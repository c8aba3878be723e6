package events

// field is a key of an event that is known here.
type field uint8

const (
	fieldUnknown field = iota
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldExtraKeys
	fieldGroup
	fieldSpecKind
	fieldWindow
	fieldLocality
	fieldOwnership
	fieldSessionID
	fieldLookahead
	fieldCacheSalt
)

var fieldNames = [...]string{
	fieldUnknown:   "unknown",
	fieldType:      "type",
	fieldHashes:    "block_hashes",
	fieldParent:    "parent_block_hash",
	fieldTokens:    "token_ids",
	fieldBlockSize: "block_size",
	fieldLoRAID:    "lora_id",
	fieldMedium:    "medium",
	fieldLoRAName:  "lora_name",
	fieldExtraKeys: "extra_keys",
	fieldGroup:     "group_idx",
	fieldSpecKind:  "kv_cache_spec_kind",
	fieldWindow:    "kv_cache_spec_sliding_window",
	fieldLocality:  "locality",
	fieldOwnership: "ownership",
	fieldSessionID: "session_id",
	fieldLookahead: "lookahead_token_ids",
	fieldCacheSalt: "cache_salt",
}

// String returns the key.
func (f field) String() string { return fieldNames[f] }

// fieldOf returns the field of a key, fieldUnknown if there is none.
func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoRAID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoRAName
	case "extra_keys":
		return fieldExtraKeys
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpecKind
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "locality":
		return fieldLocality
	case "ownership":
		return fieldOwnership
	case "session_id":
		return fieldSessionID
	case "lookahead_token_ids":
		return fieldLookahead
	case "cache_salt":
		return fieldCacheSalt
	}
	return fieldUnknown
}

// fieldSet is a set of fields.
type fieldSet uint32

// add adds f and reports whether it was new. Unknown fields are always new.
func (s *fieldSet) add(f field) bool {
	if s.has(f) {
		return f == fieldUnknown
	}
	*s |= 1 << f
	return true
}

func (s fieldSet) has(f field) bool { return s>>f&1 != 0 }
