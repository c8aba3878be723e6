package netproto

// ProtocolVersion is the number by which the reply to a ping names the wire. It changes when
// clients of the former number would be answered wrongly. Requests, fields of JSON documents and
// frames that former clients do not ask for may be added under the same number.
const ProtocolVersion = 1
