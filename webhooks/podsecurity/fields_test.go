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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// looked are the fields of the API's types that upstream's checks look at, and
// so the ones that Decode reads.
func looked() map[string][]string {
	return map[string][]string{
		"ObjectMeta":               {"Annotations"},
		"PodSpec":                  {"Containers", "EphemeralContainers", "HostIPC", "HostNetwork", "HostPID", "HostUsers", "InitContainers", "OS", "SecurityContext", "Volumes"},
		"PodOS":                    {"Name"},
		"PodSecurityContext":       {"AppArmorProfile", "RunAsNonRoot", "RunAsUser", "SELinuxOptions", "SeccompProfile", "Sysctls", "WindowsOptions"},
		"Sysctl":                   {"Name"},
		"Container":                {"Lifecycle", "LivenessProbe", "Name", "Ports", "ReadinessProbe", "SecurityContext", "StartupProbe"},
		"EphemeralContainer":       {"EphemeralContainerCommon"},
		"EphemeralContainerCommon": nil, // taken for a Container
		"ContainerPort":            {"HostPort"},
		"SecurityContext":          {"AllowPrivilegeEscalation", "AppArmorProfile", "Capabilities", "Privileged", "ProcMount", "RunAsNonRoot", "RunAsUser", "SELinuxOptions", "SeccompProfile", "WindowsOptions"},
		"AppArmorProfile":          {"Type"},
		"Capabilities":             {"Add", "Drop"},
		"SELinuxOptions":           {"Role", "Type", "User"},
		"SeccompProfile":           {"Type"},
		"Probe":                    {"ProbeHandler"},
		"ProbeHandler":             {"HTTPGet", "TCPSocket"},
		"Lifecycle":                {"PostStart", "PreStop"},
		"LifecycleHandler":         {"HTTPGet", "TCPSocket"},
		"HTTPGetAction":            {"Host"},
		"TCPSocketAction":          {"Host"},
		"Volume":                   {"Name", "VolumeSource"},
		"VolumeSource": {
			"AWSElasticBlockStore", "AzureDisk", "AzureFile", "CSI", "CephFS", "Cinder", "ConfigMap", "DownwardAPI", "EmptyDir", "Ephemeral",
			"FC", "FlexVolume", "Flocker", "GCEPersistentDisk", "GitRepo", "Glusterfs", "HostPath", "ISCSI", "Image", "NFS",
			"PersistentVolumeClaim", "PhotonPersistentDisk", "PortworxVolume", "Projected", "Quobyte", "RBD", "ScaleIO", "Secret", "StorageOS", "VsphereVolume",
		},
		"WindowsSecurityContextOptions": {"HostProcess"},
	}
}

// TestChecksLookAt fails when a check of the library's looks at a field that
// Decode does not read, or at none that it does: then change Decode and looked.
// It reads the source of the checks, with all types.
func TestChecksLookAt(t *testing.T) {
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

	got := map[string][]string{"EphemeralContainerCommon": nil}
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
	for name, want := range looked() {
		slices.Sort(want)
		if !slices.Equal(got[name], want) {
			t.Errorf("of %s, the checks look at %q, and Decode reads %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name, fields := range got {
		t.Errorf("of %s, the checks look at %q, and Decode reads nothing", name, fields)
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

// seenType is a type that has the fields that are looked at, and no others. The
// members of embedded structs are its own, as in JSON.
func seenType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return reflect.PointerTo(seenType(t.Elem()))
	}
	if t.Kind() == reflect.Slice {
		return reflect.SliceOf(seenType(t.Elem()))
	}
	if t.Kind() == reflect.Struct {
		return reflect.StructOf(seenFields(t))
	}
	return t
}

func seenFields(t reflect.Type) []reflect.StructField {
	name := t.Name()
	if name == "EphemeralContainerCommon" {
		name = "Container"
	}
	var out []reflect.StructField
	for _, of := range looked()[name] {
		field, ok := t.FieldByName(of)
		switch {
		case !ok:
			panic("no field " + t.Name() + "." + of)
		case field.Anonymous:
			out = append(out, seenFields(field.Type)...)
		default:
			out = append(out, reflect.StructField{Name: field.Name, Type: seenType(field.Type), Tag: field.Tag})
		}
	}
	return out
}

// seenPod is the type of a pod of which only what is looked at can be decoded.
func seenPod() reflect.Type {
	return reflect.StructOf([]reflect.StructField{
		{Name: "Metadata", Type: seenType(reflect.TypeFor[metav1.ObjectMeta]()), Tag: `json:"metadata"`},
		{Name: "Spec", Type: seenType(reflect.TypeFor[corev1.PodSpec]()), Tag: `json:"spec"`},
	})
}

// fill sets every field of a seenPod.
func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // all others are integers
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
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
