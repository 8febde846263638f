// Package install tests what people install Gatehouse with: what the Helm chart renders fits the program, an API server takes it as it is,
// kustomize can patch it, and uninstall leaves nothing behind that blocks.
package install

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	// chart is below the repository's root.
	chart = "manifests/chart/gatehouse"
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

// helm renders the chart, with arguments of helm template.
func helm(t *testing.T, args ...string) *variant {
	t.Helper()
	program, err := support.Built("installers", "installers", "helm")
	must(t, err)
	args = append([]string{"template", name, filepath.Join(root(t), chart), "--namespace", system}, args...)
	return newVariant(t, "helm "+strings.Join(args[5:], " "), run(t, program, args...))
}

// charted renders the chart with values of its directory ci.
func charted(t *testing.T, values string) *variant {
	t.Helper()
	return helm(t, "--values", filepath.Join(root(t), chart, "ci", values+"-values.yaml"))
}

// chartedWith renders the chart with values as --set-json takes them.
func chartedWith(t *testing.T, values ...string) *variant {
	t.Helper()
	var args []string
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	return helm(t, args...)
}

// installed is what "make release" writes to install.yaml, or with certManager to install-cert-manager.yaml.
func installed(t *testing.T, certManager bool) *variant {
	t.Helper()
	if certManager {
		return chartedWith(t, `namespace.create=true`, `certificates.source="certManager"`)
	}
	return chartedWith(t, `namespace.create=true`)
}

var rendered struct {
	once     sync.Once
	variants []*variant
}

// variants are the chart with its defaults and with the values that it is tested with, and what a release has, rendered once.
func variants(t *testing.T) []*variant {
	t.Helper()
	rendered.once.Do(func() {
		rendered.variants = append(rendered.variants, helm(t), installed(t, false), installed(t, true))
		for _, values := range valuesNames(t) {
			rendered.variants = append(rendered.variants, charted(t, values))
		}
	})
	if len(rendered.variants) < 6 {
		t.Fatal("too little was rendered: see the first test that failed")
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
