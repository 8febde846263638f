package podsecurity_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// TestChecksRead fails if a check of the library reads a field that Decode does not read,
// or none that it does: then change fields. It reads the source of the checks, with all
// types.
func TestChecksRead(t *testing.T) {
	t.Parallel()
	const core, meta = "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1"
	source := sourceOfChecks(t)
	// A field may be looked at in a package that is called, too. These do not
	// know pods.
	known := []string{core, meta, "k8s.io/apimachinery/pkg/util/sets", "k8s.io/pod-security-admission/api"}
	for _, imported := range source.Imports {
		if strings.Contains(imported, ".") && !slices.Contains(known, imported) {
			t.Errorf("the checks call %s: does it look at pods?", imported)
		}
	}

	got := map[string][]string{}
	for _, selection := range source.info.Selections {
		owner := selection.Recv()
		for _, i := range selection.Index() {
			if pointer, ok := owner.Underlying().(*types.Pointer); ok {
				owner = pointer.Elem()
			}
			named, ok := types.Unalias(owner).(*types.Named)
			if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != core && named.Obj().Pkg().Path() != meta {
				break
			}
			owner = nil
			name, field := named.Obj().Name(), selection.Obj().Name()+"()"
			if fields, ok := named.Underlying().(*types.Struct); ok && i < fields.NumFields() && selection.Kind() == types.FieldVal {
				field, owner = fields.Field(i).Name(), fields.Field(i).Type()
			}
			if !slices.Contains(got[name], field) {
				got[name] = append(got[name], field)
			}
			if owner == nil {
				break
			}
		}
	}
	for _, fields := range got {
		slices.Sort(fields)
	}
	for of, want := range podsecurity.Fields() {
		name := of.Name()
		if of == reflect.TypeFor[podsecurity.Pod]() || of == reflect.TypeFor[corev1.EphemeralContainerCommon]() {
			continue // the checks read its parts, or convert it to a Container
		}
		slices.Sort(want)
		if !slices.Equal(got[name], want) {
			t.Errorf("of %s, the checks read %q, and Decode reads %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name, fields := range got {
		t.Errorf("of %s, the checks read %q, and Decode reads nothing", name, fields)
	}
}

// checksSource is the package of upstream's checks.
type checksSource struct {
	Dir     string
	GoFiles []string
	Imports []string
	info    types.Info
}

func sourceOfChecks(t *testing.T) *checksSource {
	t.Helper()
	const checks = "k8s.io/pod-security-admission/policy"
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-json=ImportPath,Export,Dir,GoFiles,Imports", checks).Output()
	must(t, err)
	exports := map[string]string{}
	source := new(checksSource)
	for decoder := json.NewDecoder(bytes.NewReader(list)); decoder.More(); {
		var listed struct {
			checksSource

			ImportPath, Export string
		}
		must(t, decoder.Decode(&listed))
		exports[listed.ImportPath] = listed.Export
		if listed.ImportPath == checks {
			*source = listed.checksSource
		}
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range source.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(source.Dir, name), nil, parser.SkipObjectResolution)
		must(t, err)
		parsed = append(parsed, file)
	}
	if len(parsed) < 20 {
		t.Fatalf("only %d files were found", len(parsed))
	}
	source.info.Selections = map[*ast.SelectorExpr]*types.Selection{}
	config := types.Config{Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	_, err = config.Check(checks, files, parsed, &source.info)
	must(t, err)
	return source
}

// readType returns the type that has the fields that are read, and no others. The
// members of embedded structs are its own, as in JSON.
func readType(t reflect.Type) reflect.Type {
	switch t.Kind() { //nolint:exhaustive // no others have fields
	case reflect.Pointer:
		return reflect.PointerTo(readType(t.Elem()))
	case reflect.Slice:
		return reflect.SliceOf(readType(t.Elem()))
	case reflect.Struct:
		return reflect.StructOf(readFields(t))
	}
	return t
}

func readFields(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for _, name := range podsecurity.Fields()[t] {
		if field, _ := t.FieldByName(name); field.Anonymous {
			out = append(out, readFields(field.Type)...)
		} else {
			out = append(out, reflect.StructField{Name: field.Name, Type: readType(field.Type), Tag: field.Tag})
		}
	}
	return out
}

// fill sets every field that is read.
func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // all others are integers
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0)) // another element is enough to tell a list from its first
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"container.apparmor.security.beta.kubernetes.io/a": "b", "a.k8s.io/a": "b", "example.com/a": "b"}))
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(7)
	}
}
