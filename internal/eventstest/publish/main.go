// Command publish is a publisher of KV events for the demo and for tests in other modules. It prints the endpoints of its
// events and of its replays. Each line that it reads is a batch that stores blocks, by their hashes in hex. They have
// 16 tokens, or as many as its argument says. It ends with its input.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hitline/hitline/internal/eventstest"
)

func main() {
	blockSize := 16
	if len(os.Args) > 1 {
		var err error
		if blockSize, err = strconv.Atoi(os.Args[1]); err != nil {
			panic(err)
		}
	}
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
		stored := eventstest.Stored(nil, hashes...)
		stored["block_size"] = blockSize
		publisher.Publish(false, stored)
	}
}
