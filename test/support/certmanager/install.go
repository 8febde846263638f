package certmanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

const fieldManager = "gatehouse-test"

// install applies the definitions in a directory, and returns when the API server serves what they define.
func install(ctx context.Context, client dynamic.Interface, directory string) error {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return fmt.Errorf("find the definitions: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("there are no definitions in %s; hint: remove what it is in, and run 'make certmanager'", directory)
	}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	names := make([]string, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // a path of our own making
		if err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		definition := &unstructured.Unstructured{}
		err = yaml.Unmarshal(content, &definition.Object)
		if err != nil {
			return fmt.Errorf("read the definition %s: %w", file, err)
		}
		_, err = definitions.Apply(ctx, definition.GetName(), definition, metav1.ApplyOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("install the definition %s: %w", file, err)
		}
		names = append(names, definition.GetName())
	}
	for _, name := range names {
		err := support.Poll(ctx, func() error {
			definition, err := definitions.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return established(definition)
		})
		if err != nil {
			return fmt.Errorf("wait for the definition %s: %w", name, err)
		}
	}
	return nil
}

// established is an error while the API server does not serve what is defined.
func established(definition *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, condition := range conditions {
		fields, ok := condition.(map[string]any)
		if ok && fields["type"] == "Established" && fields["status"] == string(metav1.ConditionTrue) {
			return nil
		}
	}
	return fmt.Errorf("it is not established, its conditions are %v", conditions)
}

// createNamespace makes the namespace of cert-manager, unless an earlier start did.
func (m *CertManager) createNamespace(ctx context.Context) error {
	err := m.cluster.CreateNamespace(ctx, Namespace, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
