// Command ignition says of each document, one a line of JSON on its standard input, what Ignition's own validation says: a line of
// JSON for each.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/coreos/ignition/v2/config"
)

type verdict struct {
	Ok     bool   `json:"ok"`
	Report string `json:"report"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		_, report, err := config.Parse(lines.Bytes())
		found := verdict{Ok: err == nil && !report.IsFatal(), Report: report.String()}
		if err != nil {
			found.Report = fmt.Sprintf("%v: %s", err, found.Report)
		}
		if err := out.Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
