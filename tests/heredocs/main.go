// Command heredocs says of each Containerfile, one a line of JSON on its standard input, whether buildah's parser takes it: a line of
// JSON for each. The arguments of an instruction are left to the builder.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/openshift/imagebuilder/dockerfile/command"
	"github.com/openshift/imagebuilder/dockerfile/parser"
)

func parse(text string) error {
	result, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return err
	}
	for _, one := range result.AST.Children {
		if _, known := command.Commands[strings.ToLower(one.Value)]; !known {
			return fmt.Errorf("unknown instruction: %s", one.Value)
		}
	}
	return nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var text string
		err := json.Unmarshal(lines.Bytes(), &text)
		refusal := ""
		if err == nil {
			if wrong := parse(text); wrong != nil {
				refusal = wrong.Error()
			}
			err = out.Encode(refusal)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
