// Package listen binds the addresses of a server and accepts their connections: with a backoff while there are no
// descriptors, and at the end those that wait in the kernel's backlog. What a connection is for, it leaves to a Handler.
package listen
