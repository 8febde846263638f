package offline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/kustomize"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// source is a file of manifests.
type source struct {
	*manifest.File
	// path is where it was read from, and empty for standard input.
	path string
	text []byte
}

// objectsIn yields the objects of all files.
func objectsIn(sources []source) iter.Seq[*manifest.Object] {
	return func(yield func(*manifest.Object) bool) {
		for _, s := range sources {
			for _, o := range s.Objects {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// maxManifest is the size of the largest file that is read, in MiB. All CustomResourceDefinitions of an operator in one file have a
// few MiB.
const maxManifest = 64

// read reads all manifests, and returns everything that is wrong with any of them, and the others. Kinds that hold a pod are Kubernetes'
// own and the configured ones.
func (f *manifestFlags) read(stdin io.Reader, configured ...workload.Kind) ([]source, error) {
	var (
		sources []source
		found   diagnostic.List
		errs    cli.Problems
	)
	errs.Add(len(validation.IsDNS1123Label(f.namespace)) > 0, "--namespace %q: must be the name of a namespace: lower-case letters, digits and dashes", f.namespace)
	for _, problem := range metav1validation.ValidateLabels(f.labels, nil) {
		errs.Add(true, "--namespace-labels %q: %s", problem.BadValue, problem.Detail)
	}
	workloads, err := manifest.NewWorkloads(configured...)
	errs = append(errs, err)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	origins, err := f.origins(stdin)
	errs = append(errs, err)
	for _, from := range origins {
		if kustomize.IsFile(filepath.Base(from.path)) && !from.rendered && (f.lenient || from.walked) {
			f.unbuilt = append(f.unbuilt, cli.OneLine(filepath.ToSlash(from.path)))
			continue
		}
		s, err := f.readOne(stdin, from, workloads)
		if err != nil {
			if from.walked && f.missed != nil {
				f.missed(from.name(), err)
			} else {
				errs = append(errs, fmt.Errorf("%s: %w", cli.OneLine(from.name()), err))
			}
			continue
		}
		if from.walked && isForeign(&s) && (f.keep == nil || !slices.ContainsFunc(s.Objects, f.keep)) {
			f.foreign = append(f.foreign, cli.OneLine(s.Name))
			continue
		}
		for _, o := range s.Objects {
			f.addHint(s.Name, o)
			if !f.lenient {
				found = append(found, o.Errors()...)
			}
		}
		if f.lenient {
			s.Objects = slices.DeleteFunc(s.Objects, func(o *manifest.Object) bool {
				if isForConfig(o) {
					f.skipped = append(f.skipped, fmt.Sprintf("%s: %s is a document for --config, and no object of a cluster: skipped", o.Source, o.Kind))
				}
				if isForProgram(o) && !isForConfig(o) {
					f.skipped = append(f.skipped, fmt.Sprintf("%s: %s of %s configures a program, and is no object of a cluster: skipped", o.Source, o.Kind, o.GroupVersionKind().GroupVersion()))
				}
				return isForConfig(o) || isForKustomize(o) || isForProgram(o)
			})
		}
		sources = append(sources, s)
	}
	f.readContext(sources)
	return sources, append(errs, found.Err()).Err()
}

// readOne reads the manifests of one origin.
func (f *manifestFlags) readOne(stdin io.Reader, from origin, workloads *manifest.Workloads) (source, error) {
	var err error
	s := source{path: from.path}
	var rendered *manifest.Rendered
	switch {
	case from.rendered:
		rendered = &manifest.Rendered{File: from.name()}
		s.text, err = buildKustomization(from.path)
	case from.path == "":
		rendered = &manifest.Rendered{File: filepath.ToSlash(f.rendered)} // helm template writes comments
		if info, failed := os.Stat(f.rendered); failed == nil && info.IsDir() {
			rendered.Chart = rendered.File
		}
		s.text, err = cli.ReadInput(stdin, maxManifest)
		if err == nil && len(bytes.TrimSpace(s.text)) == 0 {
			err = errors.New("is empty (hint: the command in front of the pipe may have failed)")
		}
	default:
		s.text, err = cli.ReadFile(from.path, maxManifest)
	}
	if err != nil {
		return source{}, err
	}
	s.File = manifest.ReadRendered(from.name(), s.text, workloads, rendered)
	return s, nil
}

// buildKustomization returns what the kustomization in a directory renders to. The error is on one line.
func buildKustomization(dir string) ([]byte, error) {
	text, err := kustomize.Build(dir)
	if err != nil {
		return nil, errors.New(cli.OneLine(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", " ")))
	}
	return text, nil
}

// isForeign reports whether a file that a directory holds is for another program: it is the Chart.yaml of a Helm chart, or no document
// in it has a kind or an apiVersion, as in package.json or values.yaml.
func isForeign(s *source) bool {
	return path.Base(s.Name) == "Chart.yaml" || len(s.Objects) > 0 && !slices.ContainsFunc(s.Objects, func(o *manifest.Object) bool {
		if o.Unreadable != nil { // JSON with comments is read by some programs
			return o.Unreadable.Hint == manifest.TemplateHint || bytes.Contains(s.text, []byte("apiVersion"))
		}
		return !o.IsForeign()
	})
}

// isForConfig reports whether an object is a document that Gatehouse reads from a directory, and no resource of a cluster.
func isForConfig(o *manifest.Object) bool {
	switch kind := o.GroupVersionKind(); kind.Group {
	case v1alpha1.GroupVersion.Group:
		return slices.Contains([]string{"PolicyConfiguration", "AuthenticationConfiguration", "RecordingConfiguration", "Test"}, kind.Kind)
	case apiserver.GroupName:
		return kind.Kind == "AuthenticationConfiguration"
	default:
		return false
	}
}

// isForProgram reports whether an object is a file that a program reads and no API server serves: one of Kubernetes' own programs, or of
// others whose files lie among manifests.
func isForProgram(o *manifest.Object) bool {
	gvk := o.GroupVersionKind()
	switch gvk.Group {
	case "audit.k8s.io", "apiserver.k8s.io", "kubeadm.k8s.io", "kind.x-k8s.io", "abac.authorization.kubernetes.io", "controller-runtime.sigs.k8s.io",
		"ctlptl.dev", "eksctl.io", "k3d.io", "kpt.dev", "skaffold", "backstage.io":
		return true
	case "":
		return gvk == schema.GroupVersionKind{Version: "v1", Kind: "Config"} || gvk == schema.GroupVersionKind{Version: "v1", Kind: "Preferences"} // of kubectl
	default:
		return strings.HasSuffix(gvk.Group, ".config.k8s.io") || strings.HasSuffix(gvk.Group, ".admission.k8s.io") || strings.HasPrefix(gvk.Group, "config.") && strings.HasSuffix(gvk.Group, ".x-k8s.io")
	}
}

// isForKustomize reports whether an object is never sent to an API server.
func isForKustomize(o *manifest.Object) bool {
	return o.GroupVersionKind().Group == "kustomize.config.k8s.io"
}

// podHint says how the pod in an object of an unknown kind becomes known.
const podHint = "its kind is not known to hold a pod (hint: list it in workloads of a PolicyConfiguration in the --config directory)"

// helmWords returns how to give the command what a Helm chart renders to.
func (f *manifestFlags) helmWords(chart string) string {
	return "helm template " + chart + " | gatehouse " + f.command + f.sourceWords() + " -f -"
}

// chartOf returns the directory of the Helm chart among whose templates a file is, "" for another file.
func chartOf(file string) string {
	for dir := path.Dir(file); dir != path.Dir(dir); dir = path.Dir(dir) {
		if path.Base(dir) == "templates" {
			if _, err := os.Stat(filepath.FromSlash(path.Join(path.Dir(dir), "Chart.yaml"))); err == nil {
				return path.Dir(dir)
			}
		}
	}
	return ""
}

// variableHint returns how to give the command manifests in which Flux replaces variables.
func (f *manifestFlags) variableHint() string {
	return manifest.VariableHint + ", as in flux build kustomization NAME --path DIR | gatehouse " + f.command + f.sourceWords() + " -f -, or with envsubst"
}

// addHint adds to an object that looks like a part of a Helm chart how to give the command what it renders to.
func (f *manifestFlags) addHint(file string, o *manifest.Object) {
	rendered := f.helmWords(shell.Quote(cmp.Or(chartOf(file), "CHART")))
	name := path.Base(file)
	switch {
	case o.Unreadable != nil && o.Unreadable.Hint == manifest.TemplateHint:
		o.Unreadable.Hint += ", as in " + rendered
	case o.Unreadable != nil && o.Unreadable.Hint == manifest.VariableHint:
		o.Unreadable.Hint = f.variableHint()
	case f.lenient && o.Unreadable == nil && o.Odd && (strings.HasPrefix(name, "values") || name == "Chart.yaml"):
		o.NoPod += " (hint: this looks like a part of a Helm chart: give what it renders to, as in " + rendered + ")"
	}
}

// unreadableError returns why an object cannot be judged as it is written.
func unreadableError(o *manifest.Object) error {
	if o.Odd && o.Unreadable == nil {
		return errors.New(o.NoPod)
	}
	var texts []string
	for _, f := range o.Errors() {
		f.Source, f.Object = "", ""
		texts = append(texts, f.String())
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// origin is where manifests come from: a file, a kustomization, or standard input.
type origin struct {
	// path is the file, or the directory of the kustomization that is rendered, and empty for standard input.
	path     string
	rendered bool
	// walked reports whether nobody named the file: a directory holds it.
	walked bool
}

// name returns the origin as messages name it.
func (o *origin) name() string {
	switch {
	case o.rendered:
		return filepath.ToSlash(kustomize.File(o.path))
	case o.path == "":
		return cli.StdinName
	default:
		return filepath.ToSlash(o.path)
	}
}

// readsStdin reports whether manifests come from standard input.
func (f *manifestFlags) readsStdin() bool {
	return slices.Contains(f.files, "-") || len(f.files)+len(f.kustomizations) == 0
}

// origins returns where to read manifests from, each file once: arguments and -f, then -k. Without any it is standard input.
func (f *manifestFlags) origins(stdin io.Reader) ([]origin, error) {
	names := f.files
	if f.readsStdin() && len(names) == 0 {
		if cli.IsTerminalInput(stdin) {
			return nil, errors.New("there is nothing to read (hint: name a file or a directory, or pipe manifests to standard input)")
		}
		names = []string{"-"}
	}
	var (
		all  []origin
		errs cli.Problems
	)
	for _, name := range names {
		if name == "-" {
			all = append(all, origin{})
			continue
		}
		if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
			errs = append(errs, fmt.Errorf("%s: must be a file or a directory (hint: curl -fsSL %s | gatehouse %s%s -f -)", name, shell.Quote(name), f.command, f.sourceWords()))
			continue
		}
		paths, err := f.filesOf(name)
		errs = append(errs, err)
		for _, path := range paths {
			all = append(all, origin{path: path, walked: path != filepath.Clean(name)})
		}
	}
	for _, dir := range f.kustomizations {
		errs = append(errs, cli.CheckDir("--kustomize", dir))
		all = append(all, origin{path: filepath.Clean(dir), rendered: true})
	}
	errs.Add(f.rendered != "" && !f.readsStdin(), "--path is for standard input: other input has the paths of its files")
	var once []origin
	at := map[origin]int{} // the index in once
	for _, o := range all {
		key := origin{path: o.path, rendered: o.rendered}
		if i, seen := at[key]; seen {
			once[i].walked = once[i].walked && o.walked // a directory holds it, and somebody names it
			continue
		}
		at[key], once = len(once), append(once, o)
	}
	return once, errs.Err()
}

// filesOf returns the file of that name, or those in and below the directory, and an error about those that cannot be read. Hidden files
// and directories behind symbolic links are left out, but not Kyverno's tests for a command that keeps them.
func (f *manifestFlags) filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", cli.OneLine(name), cli.Cause(err))
	}
	name = filepath.Clean(name)
	if !info.IsDir() {
		return []string{name}, nil
	}
	var paths []string
	var errs []error
	failed := func(path string, err error) {
		errs = append(errs, fmt.Errorf("%s: cannot be read: %w", cli.OneLine(path), cli.Cause(err)))
	}
	_ = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error { // errs has the errors
		inTests := path != name && strings.HasPrefix(filepath.Base(filepath.Dir(path)), ".") && filepath.Dir(path) != name
		switch {
		case err != nil:
			failed(path, err)
			return nil
		case path != name && strings.HasPrefix(entry.Name(), ".") && entry.IsDir() && (f.keep == nil || entry.Name() == ".git"),
			inTests && entry.IsDir():
			return filepath.SkipDir
		case inTests && !strings.HasPrefix(entry.Name(), "kyverno-test."):
			return nil
		case strings.HasPrefix(entry.Name(), "."), entry.IsDir(), !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() { // what cannot be read is named when it is read
			paths = append(paths, path)
		}
		return nil
	})
	if err = errors.Join(errs...); err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: there is no file that ends in .yaml, .yml or .json in or below this directory", cli.OneLine(name))
	}
	return paths, err
}
