// Package install tests what people install Gatehouse with: the overlays of kustomize and the Helm chart render the same
// objects, these fit the program, none of them can lock a cluster, an API server takes them as they are, and uninstall
// leaves nothing behind that blocks.
package install

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// system is the namespace of every variant, and name is what everything in it is called.
	system = "gatehouse-system"
	name   = "gatehouse"
	// chart is below the repository's root, and so are the overlays.
	chart    = "manifests/chart/gatehouse"
	overlays = "manifests/kustomize/overlays"
)

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// variant is a way to install.
type variant struct {
	name string
	// text is what was rendered, objects what is in there.
	text    []byte
	objects []*unstructured.Unstructured
}

// root is that of the repository.
func root(t *testing.T) string {
	t.Helper()
	directory, err := support.Root()
	must(t, err)
	return directory
}

// run runs a program, and returns what it prints to standard output.
func run(t *testing.T, path string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), path, args...)
	// Neither the caller's repositories and plugins nor a cluster.
	home := t.TempDir()
	command.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_DATA_HOME=" + home}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(path), strings.Join(args, " "), err, stderr.Bytes())
	}
	return output
}

// binary returns the path of the program that all of this is about.
func binary(t *testing.T) string {
	t.Helper()
	path, err := gatehouse.Binary()
	must(t, err)
	return path
}

// newVariant reads what was rendered.
func newVariant(t *testing.T, name string, text []byte) *variant {
	t.Helper()
	v := &variant{name: name, text: text}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		document, err = yaml.ToJSON(document)
		must(t, err)
		if string(document) == "null" {
			continue // comments alone
		}
		object := &unstructured.Unstructured{}
		must(t, object.UnmarshalJSON(document))
		v.objects = append(v.objects, object)
	}
	if len(v.objects) == 0 {
		t.Fatalf("%s renders nothing", name)
	}
	return v
}

// overlayNames are those of kustomize.
func overlayNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), overlays, "*", "kustomization.yaml"))
	must(t, err)
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	for _, needed := range []string{"cert-manager", "development", "high-availability", "self-signed"} {
		if !slices.Contains(names, needed) {
			t.Fatalf("there is no overlay %s, but %q", needed, names)
		}
	}
	return names
}

// valuesNames are those of the values that the chart is tested with.
func valuesNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), chart, "ci", "*-values.yaml"))
	must(t, err)
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), "-values.yaml"))
	}
	return names
}

// kustomized renders an overlay.
func kustomized(t *testing.T, overlay string) *variant {
	t.Helper()
	program, err := support.Built("installers", "installers", "kustomize")
	must(t, err)
	// As kubectl apply -k does: nothing is read from above the overlay but other kustomizations.
	return newVariant(t, "kustomize "+overlay, run(t, program, "build", filepath.Join(root(t), overlays, overlay)))
}

// charted renders the chart with values.
func charted(t *testing.T, values string) *variant {
	t.Helper()
	program, err := support.Built("installers", "installers", "helm")
	must(t, err)
	directory := filepath.Join(root(t), chart)
	return newVariant(t, "helm "+values, run(t, program, "template", name, directory, "--namespace", system, "--include-crds",
		"--values", filepath.Join(directory, "ci", values+"-values.yaml")))
}

var rendered struct {
	once     sync.Once
	variants []*variant
}

// variants are all ways to install, rendered once.
func variants(t *testing.T) []*variant {
	t.Helper()
	rendered.once.Do(func() {
		for _, overlay := range overlayNames(t) {
			rendered.variants = append(rendered.variants, kustomized(t, overlay))
		}
		for _, values := range valuesNames(t) {
			rendered.variants = append(rendered.variants, charted(t, values))
		}
	})
	if len(rendered.variants) == 0 {
		t.Fatal("nothing was rendered: see the first test that failed")
	}
	return rendered.variants
}

// find is the object of a kind and name, wherever it is.
func (v *variant) find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range v.objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("%s has no %s %s", v.name, kind, name)
	return nil
}

// isHook reports whether Helm makes an object for a moment only.
func isHook(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()["helm.sh/hook"] != ""
}
