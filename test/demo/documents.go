package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// documents are the demonstration's own configuration, a policy that is not yet in it, the pods that are created,
// and custom resources.
//
//go:embed config/*.yaml candidate/*.yaml pods/*.yaml resources/*.yaml
var documents embed.FS

// What is shown of the repository's own examples.
const (
	exampleProfile = "manifests/examples/log-shipper/profile.yaml"
	examplePod     = "manifests/examples/log-shipper/pod.yaml"
	examplePolicy  = "manifests/examples/policies/pod-security.yaml"
)

// writeDocuments writes the configuration and the pods to a directory.
func writeDocuments(root, dir string) error {
	if err := os.CopyFS(dir, documents); err != nil {
		return err
	}
	for name, example := range map[string]string{
		"config/log-shipper.yaml":  exampleProfile,
		"config/pod-security.yaml": examplePolicy,
		"pods/checkout.yaml":       examplePod,
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(example))) //nolint:gosec // in this repository
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o600) // #nosec G703 -- names of this file
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readDocument reads one of the documents into an object of its kind.
func readDocument(name string, into any) error {
	text, err := os.ReadFile(name) //nolint:gosec // in the directory that this run made
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
