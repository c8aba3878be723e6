//go:build linux

package compare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lookupsOf returns lookups of so many hashes with so many entries.
func lookupsOf(hashes, entries int, seed uint64) *lookups {
	return newLookups(Options{Entries: entries, Seed: seed}, hashes)
}

// bytesSent returns what the first requests send, in each form.
func bytesSent(seed uint64) []byte {
	w := lookupsOf(30, 600, seed)
	w.Cut(0.5)
	template, first, stride := memberTemplate(30)
	members := w.requests(template, first, stride)
	var sent []byte
	for n := range 2 * w.Len() {
		l := w.Lookup(n)
		sent = slices.Concat(sent, w.Put(l), members.put(l))
	}
	return sent
}

func TestSeeds(t *testing.T) {
	assert.Equal(t, bytesSent(7), bytesSent(7))
	assert.NotEqual(t, bytesSent(7), bytesSent(8))
}

// Every form of a request has the absent hash where the chain has it.
func TestPrepared(t *testing.T) {
	const hashes = 30
	w := lookupsOf(hashes, 600, 1)
	w.Cut(0)
	member, first, stride := memberTemplate(hashes)
	members := w.requests(member, first, stride)
	exist, first, stride := existsTemplate(hashes)
	exists := w.requests(exist, first, stride)
	for n := range 2 * w.Len() {
		l := w.Lookup(n)
		w.Put(l)
		wantMembers, wantExists := fmt.Sprintf("*%d\r\n$10\r\nSMISMEMBER\r\n$6\r\nblocks\r\n", 2+hashes), ""
		for _, hash := range w.strings(l.Chain) {
			wantMembers += "$32\r\n" + hash + "\r\n"
			wantExists += "*2\r\n$6\r\nEXISTS\r\n$32\r\n" + hash + "\r\n"
		}
		require.Equal(t, wantMembers, string(members.put(l)))
		require.Equal(t, wantExists, string(exists.put(l)))
	}
}
