package mooncake

// Both headers begin with magic and version. A request then has the serialization, a
// response an error code. All numbers are little-endian:
//
//	request:  15 00 00 00 | sequence u32 | function u32 | body u32 | attachment u32
//	response: 15 00 error 00 | sequence u32 | body u32 | attachment u32
const (
	magic       = 0x15
	requestLen  = 20
	responseLen = 16
)

// The id of a function is the first four bytes of the MD5 of its name, as a big-endian
// number. The name begins with "mooncake::WrappedMasterService::".
const (
	fnBatchExistKey  uint32 = 0xb89fa6b0
	fnBatchProbeKey  uint32 = 0xb7fb502f // v0.3.14 on
	fnGetReplicaList uint32 = 0x1f7ef174
	fnServiceReady   uint32 = 0x7b81bb56
	fnRemoveAll      uint32 = 0xd978ceb0
	fnPing           uint32 = 0xd6c2dae5
)

// wireType is the type of a body. A body is
//
//	head u32 [meta u8 [length] [literal, 0]] value
//
// head is the code of the type, plus 1 if meta follows. Bits 3 and 4 of meta are the width
// of every count and length in the value: 1, 2, 4 or 8 bytes. Bit 2 means that the literal
// follows; only debug builds of the master send it. With bits 0 and 1 the length of the body
// follows in 2, 4 or 8 bytes, and after the value come optional fields of later releases.
type wireType struct {
	code    uint32 // first four bytes of the MD5 of literal, big-endian, with the last bit clear
	literal string // the type, as the RPC library encodes it
}

var (
	typeKeysTenant = wireType{0x00f78d62, "\xfd\x84\x80\x0c\x80\x0c\xff"} // tuple<vector<string>, string>
	typeKeys       = wireType{0x8a86e11a, "\x84\x80\x0c"}                 // vector<string>
	typeBoolTenant = wireType{0x48a6c274, "\xfd\x0b\x80\x0c\xff"}         // tuple<bool, string>
	typeBool       = wireType{0x13c8ffd8, "\x0b"}
	typeProbe      = wireType{0xb75a4d44, "\xfd\xfd\x06\x04\x89\x89\xff\x84\x80\x0c\x80\x0c\xff"} // tuple<{u8, u64}, vector<string>, string>
	typeKeyTenant  = wireType{0x7cf91ed8, "\xfd\x80\x0c\x80\x0c\xff"}                             // tuple<string, string>
	// The types of replies of GetReplicaList from v0.3.13 on, with a fifth place and a checksum, and of v0.3.12.
	typeReplicas    = wireType{0x88c6276c, replicasStart + "\xfd\x80\x0c\x04\x04\x04\x01\xff\xff\x01\xff\x04\x85\x04\xff\x01"}
	typeReplicasOld = wireType{0x75ecf440, replicasStart + "\xff\x01\xff\x04\xff\x01"}

	typeClient = wireType{0x3c6d83e0, "\xfd\x04\x04\x89\x89\xff"} // the id of a client, {u64, u64}
	typeView   = wireType{0x742a8f52, "\x87\xfd\x03\x01\xff\x01"} // expected<{version i64, status of the client i32}, ErrorCode>

	typeExists   = wireType{0x2a5f8c5c, "\x84\x87\x0b\x01"} // vector<expected<bool, ErrorCode>>
	typeVersion  = wireType{0x1cb3cc34, "\x87\x80\x0c\x01"} // expected<string, ErrorCode>
	typeCount    = wireType{0x86666834, "\x03"}             // i64
	typeText     = wireType{0x9dcffa76, "\x80\x0c"}         // string
	typeCodeText = wireType{0x372be64c, "\xfd\x08\x80\x0c\xff"}
)

// replicasStart begins the types expected<{vector<replica>, lease u64, …}, ErrorCode>. A replica is an id u64, a
// variant of places, of which these are the first four, and a status i32.
const replicasStart = "\x87\xfd\x84\xfd\x04\x86" +
	"\xfd\xfd\x04\x04\x80\x0c\x80\x0c\xff\xff" + // memory: size and address u64, protocol and endpoint string
	"\xfd\xfd\x04\x04\x80\x0c\x80\x0c\xff\xff" + // a remote disk: the same
	"\xfd\x80\x0c\x04\xff" + // a file: path string, size u64
	"\xfd\xfd\x04\x04\x89\x89\xff\x04\x80\x0c\xff" // an engine's disk: id of 16 bytes, size u64, endpoint string

const (
	hasMeta     = 1 // bit of head
	metaLength  = 3 // 0, 1, 2, 3: none, 2, 4, 8 bytes
	metaLiteral = 1 << 2
	metaWidth   = 3 << 3 // 0, 1, 2, 3: 1, 2, 4, 8 bytes
	widthShift  = 3
)

// Error codes of the RPC layer. The body is a text; with codeUser it is a number and a text.
const (
	codeTimedOut    = 3
	codeArguments   = 4 // the function takes other arguments
	codeException   = 10
	codeNotRegister = 11 // no such function
	codeTooLarge    = 14
	codeUser        = 255
)

// Error codes of the store, which replace an answer.
const (
	storeInvalidParams = -600
	storeNotFound      = -704
	storeNotServing    = -1010 // not in its current status
	storeNotInMode     = -1011
	storeNoTenant      = -1701 // not registered
)

// Form is the encoding of the arguments that a master takes.
type Form int

const (
	// FormTenant has keys and tenant: Mooncake v0.3.12 and later.
	FormTenant Form = iota + 1
	// FormKeys has only keys: Mooncake v0.3.5 to v0.3.11.
	FormKeys
	// formProbe has a policy, keys and tenant: BatchProbeKey of v0.3.14 and later.
	formProbe
)

// String describes f and its releases.
func (f Form) String() string {
	switch f {
	case FormTenant:
		return "keys and tenant (v0.3.12 on)"
	case FormKeys:
		return "keys (v0.3.5 to v0.3.11)"
	}
	return "unknown"
}
