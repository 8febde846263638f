// Package crds holds the CustomResourceDefinitions of the group gatehouse.dev, as
// controller-gen writes them from the types of webhooks/api/v1alpha1.
package crds

import (
	"embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// ApplyCommand is the command that puts the definitions of this program in place.
const ApplyCommand = "gatehouse manifests --crds | kubectl apply --server-side -f -"

//go:embed gatehouse.dev_*.yaml
var files embed.FS

// YAML is the definitions as one stream of YAML documents, sorted by the names of
// the resources, for kubectl apply --server-side.
func YAML() ([]byte, error) {
	var out []byte
	err := each(func(_ string, text []byte) error {
		out = append(out, text...)
		return nil
	})
	return out, err
}

// All are the definitions, sorted by the names of the resources. They are decoded
// with each call, and are the caller's.
func All() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	err := each(func(name string, text []byte) error {
		text, err := yaml.YAMLToJSON(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		definition := &unstructured.Unstructured{}
		if err := definition.UnmarshalJSON(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, definition)
		return nil
	})
	return all, err
}

func each(do func(name string, text []byte) error) error {
	entries, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return err
		}
		if err := do(entry.Name(), text); err != nil {
			return err
		}
	}
	return nil
}
