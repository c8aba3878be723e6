// Package api has what a hitline server and its clients both say: addresses, and the
// documents of the requests stat and explain. It links neither the server nor the
// client.
package api
