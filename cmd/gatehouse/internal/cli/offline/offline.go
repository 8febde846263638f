// Package offline has the commands that decide without a server: review, inject, uninject, check, explain, lint and test. They are one
// package because they read manifests, ask the endpoints and print places in files in the same way.
package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// configFlag is --config, the directory of the documents by which a command decides.
type configFlag struct{ config string }

func (f *configFlag) add(cmd *cobra.Command) {
	cli.AddConfigFlag(cmd, &f.config, "directory of documents (required)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
}

// sourceWords returns the flags that name the configuration, for a command in a hint.
func (f *manifestFlags) sourceWords() string {
	if f.config == "" {
		return f.cluster.Words()
	}
	return " --config " + shell.Quote(f.config) + f.cluster.Words()
}

// load reads and compiles the directory.
func (f *configFlag) load() (*config.Config, *webhooks.Snapshot, error) {
	c, snapshot, found := config.CompileDir(f.config)
	if err := found.Err(); err != nil {
		return nil, nil, config.InvalidError(f.config, err)
	}
	return c, snapshot, nil
}

// manifestFlags are the flags of a command that reads manifests.
type manifestFlags struct {
	configFlag
	// files are the arguments and the values of -f, and kustomizations those of -k.
	files, kustomizations []string
	namespace             string
	// rendered is --path, what standard input is rendered from.
	rendered string
	// command is the name of the command.
	command string
	// lenient makes a document that cannot be read an object of its own instead of an error, and skips kustomization files.
	lenient bool
	// keep reports whether an object without kind and apiVersion is for the command all the same. A command that has it reads Kyverno's tests.
	keep func(*manifest.Object) bool
	// missed takes what a directory holds and cannot be opened, nil if that is an error.
	missed func(name string, err error)
	// labels are those of namespaces that are not known otherwise. Without any, such namespaces stay unknown.
	labels map[string]string
	// allowEmpty accepts a configuration without active policies and profiles.
	allowEmpty bool
	// cluster names one whose active configuration, namespaces and params are used.
	cluster cli.SourceFlags
	// skipped are documents for --config that lenient commands leave out of manifests. Of directories, foreign are files of other
	// programs, and unbuilt are kustomizations.
	skipped, foreign, unbuilt []string
	// given are the namespaces among the manifests. Of these, twice are given with different labels or annotations, each with a hint, and
	// definedTwice are kinds with different definitions, each with the reason.
	given        map[string]*corev1.Namespace
	twice        map[string]string
	definedTwice map[schema.GroupVersionKind]error
}

func (f *manifestFlags) add(cmd *cobra.Command) {
	f.command = cmd.Name()
	flags := cmd.Flags()
	addFiles(cmd, &f.files, &f.kustomizations, "manifests, or - for standard input (default standard input)")
	flags.StringVar(&f.rendered, "path", "", "path that reports show for standard input: the file or the Helm chart from which it was rendered")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of objects that do not name one")
}

// addFiles adds to a command arguments and flags that are files and directories of something. A token is refused and not repeated.
func addFiles(cmd *cobra.Command, files, kustomizations *[]string, of string) {
	flags := cmd.Flags()
	flags.StringArrayVarP(files, "filename", "f", nil, "file or directory, as in an argument, of "+of+"; repeatable")
	flags.StringArrayVarP(kustomizations, "kustomize", "k", nil, "directory of a kustomization, which is rendered as by kustomize build, without plugins and without fetching anything; repeatable")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if slices.ContainsFunc(args, cli.LooksLikeToken) {
			return errors.New("an argument may be a token, which other users of this machine can see: arguments are files")
		}
		return nil
	}
	cmd.PreRun = func(_ *cobra.Command, args []string) { *files = append(args, *files...) }
}

// addDeciding adds the flags of a command that decides by a configuration.
func (f *manifestFlags) addDeciding(cmd *cobra.Command) {
	cmd.Flags().StringToStringVar(&f.labels, "namespace-labels", nil, "labels of the namespaces that are neither in the configuration nor among the manifests, KEY=VALUE; repeatable")
	cmd.Flags().BoolVar(&f.allowEmpty, "allow-empty", false, "accept a configuration in which no policy and no profile is active")
}

// input is what a command decides about, and by what.
type input struct {
	*manifestFlags
	sources  []source
	config   *config.Config
	snapshot *webhooks.Snapshot
	// warnings are those about the configuration.
	warnings diagnostic.List
	// definitions are the CustomResourceDefinitions that are known. Of those of opaque kinds only the scope is.
	definitions []*unstructured.Unstructured
	opaque      map[schema.GroupVersionKind]bool
	// source is the cluster, nil without one, and loaded is what is active there.
	source *cli.Source
	loaded *resolve.CommandConfig
	// unread is what of the active configuration of the cluster is not known, so that nothing is certainly admitted.
	unread error
}

// close ends the connection to the cluster.
func (in *input) close() {
	if in.source != nil {
		in.source.Close()
	}
}

// open reads the configuration and the manifests. Namespaces and CustomResourceDefinitions among the manifests are known
// as they will be created.
func (f *manifestFlags) open(ctx context.Context, stdin io.Reader) (*input, error) {
	if f.cluster.Given() {
		return f.openCluster(ctx, stdin)
	}
	read, found := config.Inspect(f.config)
	c := *read
	configured := workload.FromAPI(c.Workloads())
	if _, err := workload.New(configured); err != nil {
		configured = nil // config.Compile reports it
	}
	sources, err := f.read(stdin, configured...)
	if err != nil {
		return nil, err
	}
	f.addNamespaces(&c, false)
	snapshot, found := config.Compile(&c, found)
	if err := found.Err(); err != nil {
		return nil, config.InvalidError(f.config, err)
	}
	in := &input{manifestFlags: f, sources: sources, config: &c, snapshot: snapshot, warnings: slices.Concat(c.Warnings, snapshot.Warnings())}
	in.definitions, err = c.Policy.Objects.List(crdKind(), "", labels.Everything())
	return in, err
}

// openActive is open for a configuration that decides something. errs gets what is left out. If it is silent, it has no warnings about
// such a configuration.
func (f *manifestFlags) openActive(ctx context.Context, stdin io.Reader, errs io.Writer, silent bool) (*input, error) {
	in, err := f.open(ctx, stdin)
	if err != nil {
		return nil, err
	}
	err = in.checkActive()
	if err != nil || !silent {
		in.writeWarnings(errs)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	f.writeSkipped(errs)
	return in, nil
}

// openCluster is open for what is active in a cluster.
func (f *manifestFlags) openCluster(ctx context.Context, stdin io.Reader) (*input, error) {
	source, err := f.cluster.Open(ctx, f.config)
	if err != nil {
		return nil, err
	}
	in := &input{manifestFlags: f, source: source, opaque: map[schema.GroupVersionKind]bool{}}
	documents := source.Documents.Policy.Objects
	if in.sources, err = f.read(stdin, workload.FromAPI(source.Documents.Workloads())...); err == nil {
		in.loaded, err = source.Load(ctx, func(c *config.Config) { f.addNamespaces(c, true) })
	}
	if err == nil {
		in.config, in.snapshot, in.warnings = in.loaded.Config, in.loaded.Snapshot, in.loaded.Found
		in.unread = errors.Join(source.Unread(in.loaded)...)
		in.definitions, err = documents.List(crdKind(), "", labels.Everything())
	}
	if err == nil {
		err = in.readDefinitions()
	}
	if err != nil {
		source.Close()
		return nil, err
	}
	return in, nil
}

// readDefinitions reads the CustomResourceDefinitions of the kinds of the manifests from the cluster.
func (in *input) readDefinitions() error {
	known := request.NewResources(append(crdadmission.Definitions(), in.definitions...))
	asked := map[schema.GroupVersionKind]bool{}
	for o := range objectsIn(in.sources) {
		kind := o.GroupVersionKind()
		if asked[kind] || unreadableError(o) != nil || !known.Of(kind).Guessed {
			continue
		}
		asked[kind] = true
		definition, opaque, err := in.source.Once.Definition(kind)
		if err != nil {
			return in.source.Explain(err)
		}
		if definition != nil {
			in.definitions, in.opaque[kind] = append(in.definitions, definition), opaque
		}
	}
	return nil
}

// addNamespaces makes the namespaces among manifests, and those of labels, known beside the others. With merged, a namespace
// among them changes the other of its name.
func (f *manifestFlags) addNamespaces(c *config.Config, merged bool) {
	given := f.given
	if !merged && c.Sidecar.Namespaces != nil {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if configured, known := c.Sidecar.Namespaces.Namespace(name); known && !isSameNamespace(configured, given[name]) {
				f.skipped = append(f.skipped, fmt.Sprintf("Namespace/%s is in --config and, with other labels or annotations, among the manifests: that of --config counts", name))
			}
		}
	}
	c.Sidecar.Namespaces = namespaces{c.Sidecar.Namespaces, given, f.twice, f.labels, merged}
	c.Policy.Objects = contextObjects{c.Policy.Objects, namespaces{c.Policy.Objects, given, f.twice, f.labels, merged}}
}

// checkActive returns an error if nothing would be decided, unless that is accepted.
func (in *input) checkActive() error {
	if in.allowEmpty {
		return nil
	}
	if in.source != nil {
		return in.source.CheckDeciding(in.loaded)
	}
	return checkActive(in.config, in.manifestFlags.config, "manifests are arguments")
}

// checkActive returns an error if a configuration has no active policy and no sidecar profile, so that nothing would be decided. manifests
// says what is done with these, which may have been taken for documents.
func checkActive(c *config.Config, dir, manifests string) error {
	if resolve.Deciding(c) > 0 {
		return nil
	}
	hint := "a policy needs validationActions or a binding"
	if len(c.Policy.Policies)+len(c.Policy.AdmissionPolicies) == 0 {
		hint = "--config takes policies and sidecar profiles; " + manifests
	}
	return fmt.Errorf("%s: no policy and no profile is active (hint: %s; --allow-empty accepts this)", cli.OneLine(dir), hint)
}

// writeSkipped names the documents and files that were left out.
func (f *manifestFlags) writeSkipped(out io.Writer) {
	skipped := f.skipped
	if len(f.foreign) > 0 {
		skipped = append(skipped, fmt.Sprintf("%s without a kind or apiVersion: skipped: %s (hint: name a file to have it read; for a Helm chart, %s)",
			diagnostic.Count(len(f.foreign), "file"), someOf(f.foreign), f.helmWords("CHART")))
	}
	if len(f.unbuilt) > 0 {
		skipped = append(skipped, fmt.Sprintf("%s: not applied: %s: files beside it are read as they are, without its namespace and patches (hint: gatehouse %s%s -k %s)",
			diagnostic.Count(len(f.unbuilt), "kustomization"), someOf(f.unbuilt), f.command, f.sourceWords(), shell.Quote(path.Dir(f.unbuilt[0]))))
	}
	for _, text := range skipped {
		_, _ = fmt.Fprintln(out, "note: "+cli.OneLine(text)) // best effort
	}
}

// someOf returns the first names of a list, and how many there are besides.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// writeWarnings writes the warnings about the configuration, and what is wrong with objects of the cluster.
func (in *input) writeWarnings(out io.Writer) {
	for i := range in.warnings {
		_, _ = fmt.Fprintln(out, string(in.warnings[i].Severity)+": "+cli.OneLine(in.warnings[i].String())) // best effort
	}
}

// writeProblems says what could not be read from the cluster.
func (in *input) writeProblems(out io.Writer) {
	if in.source == nil {
		return
	}
	in.source.WriteUnconsidered(out)
	if unseen := in.cluster.Unseen(in.manifestFlags.config); unseen != "" {
		_, _ = fmt.Fprintln(out, "note: "+unseen) // best effort
	}
	problems, more := in.source.Once.Problems()
	for _, problem := range problems {
		_, _ = fmt.Fprintln(out, "note: "+cli.Inert(problem.Error())) // best effort, here and below
	}
	if more > 0 {
		_, _ = fmt.Fprintf(out, "note: and %s\n", diagnostic.Count(more, "more problem"))
	}
}

// problems returns the number of what could not be read from the cluster so far.
func (in *input) problems() int {
	if in.source == nil {
		return 0
	}
	problems, more := in.source.Once.Problems()
	return len(problems) + more
}

// errUnread is the error of an object if so many problems came before that this one is only counted.
var errUnread = errors.New("something that decides about it could not be read from the cluster")

// problemsSince returns what could not be read from the cluster after the first problems, nil for nothing.
func (in *input) problemsSince(before int) error {
	if in.problems() == before {
		return nil
	}
	problems, _ := in.source.Once.Problems()
	if len(problems) <= before {
		return errUnread
	}
	return errors.Join(problems[before:]...)
}

// contextObjects are the objects of the configuration, with more namespaces.
type contextObjects struct {
	policy.Objects
	namespaces namespaces
}

// Namespace returns the namespace of this name, and whether it is known.
func (o contextObjects) Namespace(name string) (*corev1.Namespace, bool) {
	return o.namespaces.Namespace(name)
}

// namespaces are those of the configuration, then given ones, then all others with the same labels.
type namespaces struct {
	configured sidecar.Namespaces
	given      map[string]*corev1.Namespace
	twice      map[string]string // are unknown unless they are configured alone
	labels     map[string]string // of all others, which are unknown without labels
	// merged reports whether a given namespace changes a configured one.
	merged bool
}

// Namespace returns the namespace of this name, and whether it is known.
func (n namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	_, twice := n.twice[name]
	if n.configured != nil && (!twice || !n.merged) {
		if found, ok := n.configured.Namespace(name); ok {
			if next := n.given[name]; n.merged && next != nil {
				found = resolve.Applied(found, next)
			}
			return found, true
		}
	}
	if twice {
		return nil, false
	}
	found, ok := n.given[name]
	if !ok && len(n.labels) > 0 && name != "" {
		labels := maps.Clone(n.labels)
		labels[corev1.LabelMetadataName] = name // as the API server sets it
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, true
	}
	return found, ok
}

// readContext reads the namespaces among manifests, and which namespaces and CustomResourceDefinitions are given twice. If two differ,
// it depends on the order in which manifests are applied which of them counts for an object, so neither is known. If they are alike, there
// is a note.
func (f *manifestFlags) readContext(sources []source) {
	f.given, f.twice, f.definedTwice = map[string]*corev1.Namespace{}, map[string]string{}, map[schema.GroupVersionKind]error{}
	first := map[string]*manifest.Object{}
	for o := range objectsIn(sources) {
		n, isNamespace := o.AsNamespace()
		if !isNamespace && o.GroupVersionKind() != crdKind() {
			continue
		}
		before := first[o.Title()]
		switch {
		case before == nil:
			if first[o.Title()] = o; isNamespace {
				f.given[n.Name] = n
			}
			continue
		case isNamespace && !isSameNamespace(f.given[n.Name], n):
			f.twice[n.Name] = fmt.Sprintf("%s is given twice, with different labels or annotations, in %s and in %s: remove one of the two, or check them apart", o.Title(), before.Place(), o.Place())
		case !isNamespace && f.addDefinedTwice(contentOf(before), contentOf(o), before.Place(), o.Place()):
		default:
			f.skipped = append(f.skipped, fmt.Sprintf("%s is given twice with the same content, in %s and in %s", o.Title(), before.Place(), o.Place()))
		}
	}
	for name := range f.twice {
		delete(f.given, name)
	}
}

// addDefinedTwice makes it unknown what becomes of objects of the kinds of two definitions that differ, and reports whether they do.
func (f *manifestFlags) addDefinedTwice(one, other map[string]any, places ...string) bool {
	if equality.Semantic.DeepEqual(one["spec"], other["spec"]) {
		return false
	}
	for _, definition := range []map[string]any{one, other} {
		request.Versions(definition, func(kind schema.GroupVersionKind, _ string, _ map[string]any) {
			f.definedTwice[kind] = fmt.Errorf("the CustomResourceDefinition of kind %q is given twice, with different content, in %s (hint: remove one of the two)", kind.Kind, strings.Join(places, " and in "))
		})
	}
	return true
}

// isSameNamespace reports whether two namespaces have the same labels and annotations, but for the label that the API server sets.
func isSameNamespace(a, b *corev1.Namespace) bool {
	labels := func(n *corev1.Namespace) map[string]string {
		all := maps.Clone(n.Labels)
		delete(all, corev1.LabelMetadataName)
		return all
	}
	return maps.Equal(labels(a), labels(b)) && maps.Equal(a.Annotations, b.Annotations)
}

// namespaceHint says how a namespace becomes known.
func (f *manifestFlags) namespaceHint(name string) string {
	return cmp.Or(f.twice[name], labelsHint)
}

// sidecarInput returns what is decided about the pod in an object.
func (f *manifestFlags) sidecarInput(o *manifest.Object) sidecar.Input {
	namespace := f.namespaceOf(o)
	in := sidecar.ForPod(namespace, o.Pod(namespace))
	in.Workload = o.Workload
	return in
}

func (f *manifestFlags) namespaceOf(o *manifest.Object) string {
	return cmp.Or(o.Namespace, f.namespace)
}

// misplacedWarnings returns warnings about annotations that are meant for the pod of an object and stand on the object itself.
func misplacedWarnings(o *manifest.Object) []string {
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

// undecided returns why it cannot be decided what becomes of a pod, on one line.
func (f *manifestFlags) undecided(namespace string, d *sidecar.Decision) diagnostic.Diagnostic {
	return admit.Undecided(namespace, d, f.namespaceHint(namespace))
}
