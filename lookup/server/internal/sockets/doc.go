// Package sockets has what package net does not tell of sockets, and pairs of them.
package sockets
