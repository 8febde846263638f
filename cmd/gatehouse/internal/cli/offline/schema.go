package offline

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// draft is the version of JSON Schema that editors know best.
const draft = "http://json-schema.org/draft-07/schema#"

// kindSchema is the JSON Schema of a kind.
type kindSchema struct {
	kind   schema.GroupVersionKind
	schema map[string]any
}

// path returns the path of the file in a directory of schemas, as kubeconform and others expect it.
func (k kindSchema) path() string {
	return filepath.Join(k.kind.Group, strings.ToLower(k.kind.Kind)+"_"+k.kind.Version+".json")
}

// NewSchemaCommand returns the command "gatehouse schema".
func NewSchemaCommand(s cli.Streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print JSON Schemas of Gatehouse's kinds, for editors",
		Long: `Schema prints a JSON Schema for documents of all kinds, which accepts documents of other kinds
as they are. Editors complete and check YAML with it. Only lint and check see all mistakes.

With --dir it writes a file for each kind, DIR/GROUP/KIND_VERSION.json, and DIR/all.json.

Exit codes: 0 printed, 2 bad usage.`,
		Example: `  # for the YAML extension of an editor ("yaml.schemas": {"schemas/all.json": "config/**"})
  gatehouse schema --dir schemas`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := kindSchemas()
			if err != nil {
				return err
			}
			if dir != "" {
				return writeSchemas(dir, all)
			}
			return cli.WriteJSON(s.Out, anyKind(all))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a file for each kind into this directory")
	_ = cmd.MarkFlagDirname("dir") // the flag exists
	return cmd
}

func writeSchemas(dir string, all []kindSchema) error {
	files := map[string]map[string]any{"all.json": anyKind(all)}
	for _, k := range all {
		files[k.path()] = k.schema
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text, err := json.MarshalIndent(files[name], "", "  ")
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as public as the files
			return err
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a public file
			return err
		}
	}
	return nil
}

// anyKind returns the schema for documents of these kinds, and of others.
func anyKind(all []kindSchema) map[string]any {
	var each []any
	for _, k := range all {
		each = append(each, map[string]any{
			"if": map[string]any{
				"required":   []any{"apiVersion", "kind"},
				"properties": map[string]any{"kind": oneOf(k.kind.Kind), "apiVersion": map[string]any{"type": "string", "pattern": "^" + k.kind.Group + "/"}},
			},
			"then": k.schema,
		})
	}
	return map[string]any{"$schema": draft, "type": "object", "allOf": each}
}

func oneOf(value string) map[string]any {
	return map[string]any{"type": "string", "enum": []any{value}}
}

// kindSchemas returns the schemas of all kinds: those of the CustomResourceDefinitions, and those of the Go types of kinds that are
// read from files alone.
func kindSchemas() ([]kindSchema, error) {
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	var all []kindSchema
	for _, definition := range definitions {
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind") // the tests of the definitions hold these
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		version, _ := versions[0].(map[string]any)
		of, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		strictSchema(of)
		all = append(all, kindSchema{v1alpha1.GroupVersion.WithKind(kind), of})
	}
	for _, value := range []any{v1alpha1.AuthenticationConfiguration{}, v1alpha1.PolicyConfiguration{}, v1alpha1.RecordingConfiguration{}, v1alpha1.Test{}} {
		of := reflect.TypeOf(value)
		all = append(all, kindSchema{v1alpha1.GroupVersion.WithKind(of.Name()), typeSchema(of)})
	}
	upstream := reflect.TypeFor[apiserverv1.AuthenticationConfiguration]()
	all = append(all, kindSchema{apiserverv1.SchemeGroupVersion.WithKind(upstream.Name()), typeSchema(upstream)})
	for _, k := range all {
		properties, _ := k.schema["properties"].(map[string]any)
		properties["apiVersion"], properties["kind"] = oneOf(k.kind.GroupVersion().String()), oneOf(k.kind.Kind)
		k.schema["$schema"], k.schema["title"] = draft, k.kind.Kind
		required, _ := k.schema["required"].([]any)
		k.schema["required"] = append([]any{"apiVersion", "kind"}, required...)
	}
	return all, nil
}

// strictSchema changes a schema of a CustomResourceDefinition to one that rejects unknown fields, without Kubernetes' extensions.
func strictSchema(value any) {
	of, isSchema := value.(map[string]any)
	if !isSchema {
		return
	}
	if of["properties"] != nil && of["x-kubernetes-preserve-unknown-fields"] != true {
		of["additionalProperties"] = false
	}
	maps.DeleteFunc(of, func(key string, _ any) bool { return strings.HasPrefix(key, "x-kubernetes-") })
	for _, part := range of {
		strictSchema(part)
	}
}

// typeSchema returns the schema of a Go type by its JSON tags. Types with a decoder of their own may be anything, but for times.
func typeSchema(of reflect.Type) map[string]any {
	switch {
	case of == reflect.TypeFor[metav1.Duration](), of == reflect.TypeFor[metav1.Time]():
		return map[string]any{"type": "string"}
	case reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return map[string]any{}
	}
	switch of.Kind() { //nolint:exhaustive // kinds of JSON; others are in no document
	case reflect.Pointer:
		return typeSchema(of.Elem())
	case reflect.Struct:
		properties := map[string]any{}
		for _, field := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "-" && field.IsExported() {
				properties[name] = typeSchema(field.Type)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": typeSchema(of.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(of.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	default:
		return map[string]any{"type": "integer"}
	}
}
