// Package wire is the socket layer of the measurements: sockets by raw system calls, the dialects that
// servers speak, and the requests around a measurement, such as handshake, auth and ping. It is there on
// Linux only. No promise: it is internal to this module, and its API may change in any release.
//
// A connection begins as a [Control] on a net.Conn, which makes the handshake and sends the
// token. [Control.Socket] and [Control.Conn] then take its socket over for what is measured.
package wire
