// Merges pairs of configs with Ignition itself: each line of the input is a pair, each line of the output adds what
// becomes of it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for lines.Scan() {
		var pair []types.Config
		if err := json.Unmarshal(lines.Bytes(), &pair); err != nil {
			panic(err)
		}
		merged, err := json.Marshal(ignition.Merge(pair[0], pair[1]))
		if err != nil {
			panic(err)
		}
		line := lines.Bytes()
		fmt.Printf("%s,%s]\n", line[:len(line)-1], merged)
	}
}
