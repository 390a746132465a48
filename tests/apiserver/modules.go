//go:build modules

// The bench reads the CRDs of these modules from the module cache; the imports only pin them.
package main

import (
	_ "github.com/openshift/api/machineconfiguration/v1"
)
