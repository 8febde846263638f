// Package offline has the commands that decide without a server: review, inject, uninject, check, explain, lint and test. They are
// one package, of more than 4,000 lines, because they read manifests, ask the endpoints and print places in files in the same way.
package offline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// offlineFlags are what the command line of a command that reads manifests says.
type offlineFlags struct {
	files, workloads []string
	namespace        string
	config           string
	// command is the name of the command.
	command string
	// each tells of each document that it cannot be read, in its place, and
	// passes over what is for kustomize. Otherwise it is an error.
	each bool
	// labels are those of namespaces that are not known, and nil if there are to
	// be no such namespaces.
	labels map[string]string
}

// add adds the flags to a command.
func (f *offlineFlags) add(cmd *cobra.Command) {
	f.command = cmd.Name()
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or directory of manifests, or - for standard input, which is read without this; repeatable")
	flags.StringArrayVar(&f.workloads, "workload", nil, "further kind that holds a pod, KIND.GROUP=PATH, as in Rollout.argoproj.io=spec.template; repeatable")
	flags.StringVar(&f.namespace, "namespace", "default", "namespace of objects that do not say theirs")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag exists, here and below
	_ = cmd.RegisterFlagCompletionFunc("workload", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	cmd.ValidArgsFunction = cobra.NoFileCompletions // fileArgs refuses them
}

// addConfig adds the flag for the configuration.
func (f *offlineFlags) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "directory of documents (required)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	_ = cmd.MarkFlagDirname("config")
}

// addLabels adds the flag for labels of namespaces.
func (f *offlineFlags) addLabels(cmd *cobra.Command) {
	cmd.Flags().StringToStringVar(&f.labels, "namespace-labels", nil, "labels of namespaces that are not known otherwise, KEY=VALUE; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("namespace-labels", cobra.NoFileCompletions) // the flag exists
}

// fileArgs refuses files that are not given with -f.
func fileArgs() cobra.PositionalArgs {
	return cli.NoArgs(func(string) string { return "files are given with -f" })
}

// decider is what tells what becomes of a pod.
type decider func(sidecar.Input) sidecar.Decision

// offline is what a command needs to decide about manifests.
type offline struct {
	*offlineFlags
	sources  []source
	config   *config.Config
	snapshot *webhooks.Snapshot
}

// open reads the configuration and the manifests. Namespaces that are among the
// manifests are known as they will be created, and CustomResourceDefinitions too.
func (f *offlineFlags) open(stdin io.Reader) (*offline, error) {
	read, found := config.Inspect(f.config)
	c := *read
	configured := workload.FromAPI(c.Workloads())
	if _, err := workload.New(configured); err != nil {
		configured = nil // what is wrong with them is found when the configuration is compiled
	}
	sources, err := f.read(stdin, configured...)
	if err != nil {
		return nil, err
	}
	known := given(sources)
	c.Sidecar.Namespaces = namespaces{c.Sidecar.Namespaces, known, f.labels}
	c.Policy.Objects = contextObjects{c.Policy.Objects, namespaces{c.Policy.Objects, known, f.labels}}
	snapshot, found := active.Compile(&c, found)
	if err := found.Err(); err != nil {
		return nil, active.InvalidError(f.config, err)
	}
	return &offline{offlineFlags: f, sources: sources, config: &c, snapshot: snapshot}, nil
}

// contextObjects are the objects of the configuration, and namespaces that are
// given besides.
type contextObjects struct {
	policy.Objects
	namespaces namespaces
}

// Namespace returns the namespace of this name, and whether it is known.
func (o contextObjects) Namespace(name string) (*corev1.Namespace, bool) {
	return o.namespaces.Namespace(name)
}

// namespaces are those of the configuration, others that are given, and then all
// others, with labels that are said of all of them.
type namespaces struct {
	configured sidecar.Namespaces
	given      map[string]*corev1.Namespace
	// labels are those of all others, of which nothing is known if there are none.
	labels map[string]string
}

// Namespace returns the namespace of this name, and whether it is known.
func (n namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	if n.configured != nil {
		if found, ok := n.configured.Namespace(name); ok {
			return found, true
		}
	}
	found, ok := n.given[name]
	if !ok && len(n.labels) > 0 && name != "" {
		labels := maps.Clone(n.labels)
		labels[corev1.LabelMetadataName] = name // as the API server sets it
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, true
	}
	return found, ok
}

// given are the namespaces among manifests. Of two with one name the last one
// holds, as when they are applied in this order.
func given(sources []source) map[string]*corev1.Namespace {
	all := make(map[string]*corev1.Namespace)
	for _, s := range sources {
		for _, o := range s.Objects {
			if n, ok := o.AsNamespace(); ok {
				all[n.Name] = n
			}
		}
	}
	return all
}

// source is a file of manifests.
type source struct {
	*manifest.File
	// path is where it was read from, and empty for standard input.
	path string
	text []byte
}

// maxManifest is the size of the largest file that is read. The largest ones in
// use, all custom resource definitions of an operator in one file, have a few
// MiB.
const maxManifest = 64 << 20

// read reads all manifests. Kinds that hold a pod are those of the flags and
// those that are configured. Everything that is wrong with any of the manifests
// is in the error.
func (f *offlineFlags) read(stdin io.Reader, configured ...workload.Kind) ([]source, error) {
	var (
		sources []source
		found   diagnostic.List
		errs    []error
	)
	if len(validation.IsDNS1123Label(f.namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q: must be a DNS label: lower-case letters, digits and dashes", f.namespace))
	}
	for _, problem := range metav1validation.ValidateLabels(f.labels, nil) {
		errs = append(errs, fmt.Errorf("--namespace-labels %q: %s", problem.BadValue, problem.Detail))
	}
	workloads, err := manifest.NewWorkloads(f.workloads, configured...)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			errs = append(errs, errors.New("--workload "+strings.TrimSpace(line)))
		}
	}
	paths, err := f.paths(stdin)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, from := range paths {
		if f.each && isKustomization(filepath.Base(from)) {
			continue
		}
		s := source{path: from}
		name := filepath.ToSlash(from)
		if from == "" {
			name = cli.StdinName
			s.text, err = readMost(stdin)
		} else {
			s.text, err = readFile(from)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if f.each {
			s.File = manifest.Read(name, s.text, workloads)
			f.hint(s.File)
			sources = append(sources, s)
			continue
		}
		s.File, err = manifest.Parse(name, s.text, workloads)
		if list, ok := errors.AsType[diagnostic.List](err); ok {
			for i := range list {
				f.complete(&list[i])
			}
			found = append(found, list...)
			continue
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, s.NotTexts()...)
		sources = append(sources, s)
	}
	if err := found.Err(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return sources, nil
}

// isKustomization tells of files that are for kustomize, whatever is in them.
func isKustomization(name string) bool {
	return name == "kustomization.yaml" || name == "kustomization.yml" || name == "Kustomization"
}

// isForKustomize tells of what never meets an API server.
func isForKustomize(o *manifest.Object) bool {
	return o.GroupVersionKind().Group == "kustomize.config.k8s.io"
}

// podHint says how the pod in an object becomes known.
func podHint(o *manifest.Object) string {
	return fmt.Sprintf("its kind is not known to hold a pod (hint: --workload %s)", o.Suggestion)
}

// complete adds to the hint about a template how the command gets what it renders
// to.
func (f *offlineFlags) complete(found *diagnostic.Diagnostic) {
	if found.Hint == manifest.TemplateHint {
		found.Hint += ", as in " + f.rendered()
	}
}

func (f *offlineFlags) rendered() string {
	return "helm template CHART | gatehouse " + f.command + " -f -"
}

// hint says what to do about documents that cannot be read, and about those that
// are for Helm.
func (f *offlineFlags) hint(file *manifest.File) {
	name := path.Base(file.Name)
	for _, o := range file.Objects {
		switch {
		case o.Unreadable != nil:
			f.complete(o.Unreadable)
		case o.Odd && (strings.HasPrefix(name, "values") || name == "Chart.yaml"):
			o.NoPod += " (hint: this looks like a part of a Helm chart: give what it renders to, as in " + f.rendered() + ")"
		}
	}
}

// unreadable is why an object cannot be judged as it is written: it cannot be
// read, or the API server could not read it.
func unreadable(o *manifest.Object) error {
	if o.Unreadable != nil {
		f := *o.Unreadable
		f.Source = ""
		return errors.New(f.String())
	}
	if o.Odd {
		return errors.New(o.NoPod)
	}
	var texts []string
	for _, f := range o.NotTexts() {
		f.Source, f.Object = "", ""
		texts = append(texts, f.String())
	}
	if len(texts) > 0 {
		return errors.New(strings.Join(texts, "; "))
	}
	return nil
}

// paths are the files that are to be read, each once. Standard input is an empty
// one.
func (f *offlineFlags) paths(stdin io.Reader) ([]string, error) {
	names := f.files
	if len(names) == 0 {
		if cli.IsTerminalInput(stdin) {
			return nil, errors.New("there is nothing to read (hint: name a file with -f, or pipe manifests to standard input)")
		}
		names = []string{"-"}
	}
	var (
		all  []string
		errs []error
	)
	for _, name := range names {
		if name == "-" {
			all = append(all, "")
			continue
		}
		if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
			errs = append(errs, fmt.Errorf("%s: must be a file or a directory (hint: curl -fsSL %s | gatehouse %s -f -)", name, name, f.command))
			continue
		}
		paths, err := filesOf(name)
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, paths...)
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(path string) bool {
		again := seen[path]
		seen[path] = true
		return again
	}), errors.Join(errs...)
}

// filesOf are the files of that name: the file, or those in and below the
// directory, by name. Files and directories whose name begins with a dot are
// left out, and so are directories behind symbolic links.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", name, cli.Cause(err))
	}
	name = filepath.Clean(name)
	if !info.IsDir() {
		return []string{name}, nil
	}
	var paths []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: cannot be read: %w", path, cli.Cause(err))
		case path != name && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(entry.Name(), "."), entry.IsDir(), !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%s: cannot be read: %w", path, cli.Cause(err))
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		paths = append(paths, path)
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: there is no file that ends in .yaml, .yml or .json in or below this directory", name)
	}
	return paths, err
}

func readFile(path string) (text []byte, err error) {
	file, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cli.Cause(err))
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return readMost(file)
}

func readMost(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cli.Cause(err))
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("is larger than %d MiB", maxManifest>>20)
	}
	return text, nil
}

// input is what is decided about an object, which holds a pod.
func (f *offlineFlags) input(o *manifest.Object) sidecar.Input {
	namespace := f.namespaceOf(o)
	return sidecar.Input{Namespace: namespace, Pod: o.Pod(namespace), Workload: o.Workload}
}

func (f *offlineFlags) namespaceOf(o *manifest.Object) string {
	if o.Namespace != "" {
		return o.Namespace
	}
	return f.namespace
}

// misplaced warns about annotations that are meant for the pod of an object and
// stand on the object itself.
func misplaced(o *manifest.Object) []string {
	var warnings []string
	for _, f := range o.Misplaced(func(name string) bool {
		domain, _, _ := strings.Cut(name, "/")
		return name == v1alpha1.InjectAnnotation || strings.HasSuffix(domain, "."+v1alpha1.ParameterDomain)
	}) {
		f.Source, f.Object = "", ""
		warnings = append(warnings, f.String())
	}
	return warnings
}

// couldNotTell is why it could not be told what becomes of a pod, on one line.
func couldNotTell(in *sidecar.Input, d *sidecar.Decision) diagnostic.Diagnostic {
	f := diagnostic.Diagnostic{Severity: diagnostic.Error}
	var profiles []string
	known := make(map[string]bool)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Reason == sidecar.NamespaceUnknown {
			profiles = append(profiles, strconv.Quote(v.Profile))
			known[fmt.Sprintf("namespace %q is not known, and sidecar profile %q selects namespaces by their labels", in.Namespace, v.Profile)] = true
		}
	}
	var messages []string
	switch len(profiles) {
	case 0:
	case 1:
		messages = append(messages, fmt.Sprintf("namespace %q is not known, and sidecar profile %s selects namespaces by their labels", in.Namespace, profiles[0]))
	default:
		messages = append(messages, fmt.Sprintf("namespace %q is not known, and sidecar profiles %s select namespaces by their labels", in.Namespace, strings.Join(profiles, ", ")))
	}
	if len(profiles) > 0 {
		f.Hint = namespaceHint
	}
	// What is said of all of these profiles at once is not said of each again.
	for line := range strings.Lines(d.Err.Error()) {
		if line = strings.TrimSpace(line); !known[line] {
			messages = append(messages, line)
		}
	}
	f.Message = strings.Join(messages, "; ")
	return f
}

// about is what a command says on standard error, one line an object.
type about struct {
	lines bytes.Buffer
	quiet bool
}

func (a *about) say(o *manifest.Object, format string, args ...any) {
	if a.quiet {
		return
	}
	// What is no object has no title.
	for _, part := range []string{o.Source, cmp.Or(o.Title(), o.Item)} {
		if part != "" {
			a.lines.WriteString(part + ": ")
		}
	}
	_, _ = fmt.Fprintf(&a.lines, format+"\n", args...) // to memory
}

// sum says how many objects were changed.
func (a *about) sum(sources []source) {
	if a.quiet {
		return
	}
	var changed, left, other int
	for _, s := range sources {
		for _, o := range s.Objects {
			switch {
			case o.Changed():
				changed++
			case o.OfKind, o.Odd, o.Suggestion != "":
				left++
			default:
				other++
			}
		}
	}
	are := "left as they are"
	if left == 1 {
		are = "left as it is"
	}
	_, _ = fmt.Fprintf(&a.lines, "%s changed, %d %s, %d without a pod\n", diagnostic.Count(changed, "object"), left, are, other) // to memory
}

// noPod says of an object why it holds no pod, where that may surprise.
func (a *about) noPod(o *manifest.Object) {
	switch {
	case o.OfKind, o.Odd:
		a.say(o, "left as it is: %s", o.NoPod)
	case o.Suggestion != "":
		a.say(o, "left as it is: its kind is not known to hold a pod (hint: --workload %s)", o.Suggestion)
	}
}

// writtenOut says of which objects aliases did not stay.
func (a *about) writtenOut(sources []source, where string) {
	for _, s := range sources {
		for _, o := range s.Objects {
			if o.WrittenOut() {
				a.say(o, "aliases are written out where sidecars are %s", where)
			}
		}
	}
}
