// Renders kustomizations as `kubectl apply -k` does, for the tests of the manifests.
//
//	render [--component DIR]... DIR
//
// The YAML is on standard output. With components, they are put on top of DIR as an overlay would do it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var components []string
	for len(args) >= 2 && args[0] == "--component" {
		components = append(components, args[1])
		args = args[2:]
	}
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("usage: render [--component DIR]... DIR")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	if len(components) > 0 {
		overlay, err := overlay(dir, components)
		if overlay != "" {
			defer os.RemoveAll(overlay)
		}
		if err != nil {
			return err
		}
		dir = overlay
	}
	options := krusty.MakeDefaultOptions()
	// As kubectl orders them: what others need comes first.
	options.Reorder = krusty.ReorderOptionLegacy
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return err
	}
	text, err := resources.AsYaml()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// overlay writes a kustomization with components into a directory of its own. Kustomize refuses absolute paths.
func overlay(base string, components []string) (string, error) {
	dir, err := os.MkdirTemp("", "render-")
	if err != nil {
		return "", err
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return dir, err
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
	for _, list := range []struct {
		key  string
		dirs []string
	}{{"resources", []string{base}}, {"components", components}} {
		text += list.key + ":\n"
		for _, one := range list.dirs {
			absolute, err := filepath.Abs(one)
			if err != nil {
				return dir, err
			}
			relative, err := filepath.Rel(dir, absolute)
			if err != nil {
				return dir, err
			}
			text += fmt.Sprintf("  - %q\n", relative)
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
}
