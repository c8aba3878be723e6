// Command publish is a publisher of KV events for tests in other modules. It prints the endpoints of its events and of
// its replays. Each line that it reads is a batch that stores blocks of 16 tokens, by their hashes in hex. It ends with
// its input.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/hitline/hitline/internal/eventstest"
)

func main() {
	publisher := eventstest.New(eventstest.Example{})
	defer publisher.Close()
	fmt.Fprintln(os.Stdout, publisher.Endpoint, publisher.Replay)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var hashes [][]byte
		for text := range strings.FieldsSeq(lines.Text()) {
			hash, err := hex.DecodeString(text)
			if err != nil {
				panic(err)
			}
			hashes = append(hashes, hash)
		}
		publisher.Publish(false, eventstest.Stored(nil, hashes...))
	}
}
