package openreports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

const (
	// page is the number of reports whose metadata are read at a time.
	page = 50
	// requestTimeout bounds a request to the API server.
	requestTimeout = 15 * time.Second
	// maxFailures bounds the errors in a message.
	maxFailures = 5

	// ManagedByLabel is on all reports.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// InstallLabel is on all reports, with the namespace of the install.
	InstallLabel = "gatehouse.dev/install"

	// Rights names the resources of reports in messages.
	Rights = "reports and clusterreports in " + v1alpha1.GroupName

	// kind, clusterKind, resource and clusterResource are those of reports in a namespace and of the cluster.
	kind, clusterKind         = "Report", "ClusterReport"
	resource, clusterResource = "reports", "clusterreports"
)

// Writer writes the reports of an install.
type Writer struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	// namespace is that of the install, and name that of its reports.
	namespace, name string
}

// NewWriter returns a Writer. Namespace is that of the install.
func NewWriter(objects dynamic.Interface, metadata metadata.Interface, namespace string) *Writer {
	return &Writer{objects: objects, metadata: metadata, namespace: namespace, name: install.ReportName(namespace)}
}

// Changes are numbers of reports.
type Changes struct{ Written, Removed, Unchanged int }

// ErrUnserved is the error of a cluster that does not have the API of reports.
var ErrUnserved = errors.New("the API server does not have the kinds of reports")

// Write applies the reports, which changes those that differ, and removes the others of this install if the audit was
// complete: otherwise what they report may be among what was not read. A namespace that is being deleted gets none. An error
// about one report does not keep it from writing the others, unless they would fail in the same way: a tenant can make
// the report of a namespace fail.
func (w *Writer) Write(ctx context.Context, reports []v1alpha1.Report, isComplete bool) (changes Changes, err error) {
	found, err := w.list(ctx)
	if err != nil {
		return changes, err
	}
	var errs []error
	failed := 0
	add := func(action, namespace string, err error) {
		if failed++; failed <= maxFailures {
			errs = append(errs, fmt.Errorf("%s the report of %q: %w", action, namespace, err))
		}
	}
	isLast := false // reports whether all other requests would fail too
	for i := range reports {
		r := &reports[i]
		before, exists := found[r.Namespace]
		delete(found, r.Namespace)
		if isLast {
			continue
		}
		version, err := w.apply(ctx, r)
		switch {
		case err != nil && !isGone(err):
			isLast = !isOfOne(err)
			add("write", r.Namespace, classified(err))
		case err != nil:
		case exists && before.version == version:
			changes.Unchanged++
		default:
			changes.Written++
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		if isLast || !isComplete {
			break
		}
		err := w.remove(ctx, namespace, found[namespace])
		switch {
		case err == nil:
			changes.Removed++
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // it is gone otherwise
			isLast = !isOfOne(err)
			add("remove", namespace, classified(err))
		}
	}
	if failed > maxFailures {
		errs = append(errs, fmt.Errorf("and %d more", failed-maxFailures))
	}
	return changes, errors.Join(errs...)
}

// isOfOne reports whether an error is about one report: the API server has answered, and would answer otherwise for others.
func isOfOne(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	// With 500 the API server rejects one object: too large for its store, for example.
	return answered && (!apierr.Classify(err).IsTemporary() || status.ErrStatus.Code == 500) && !LacksRight(err) &&
		!apierrors.IsUnauthorized(err) && !errors.Is(classified(err), ErrUnserved)
}

// LacksRight reports whether an error of Write is about a missing right: refusals of quotas and other
// admission plugins are not.
func LacksRight(err error) bool {
	return slices.ContainsFunc([]string{"list", "patch", "create", "delete"}, func(verb string) bool { return apierr.LacksRight(err, verb) })
}

// isGone reports whether a namespace is being deleted, or was.
func isGone(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		ok && apierrors.IsNotFound(err) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Kind == "namespaces"
}

// classified marks the error of a cluster without the kinds of reports.
func classified(err error) error {
	if class := apierr.Classify(err); class == apierr.Unserved || class == apierr.NotFound {
		return fmt.Errorf("%w (%s): %w", ErrUnserved, v1alpha1.SchemeGroupVersion, err)
	}
	return err
}

// listed is a report in the cluster.
type listed struct{ uid, version string }

// list returns the reports of this install by namespace. Only their metadata are read: a tenant who
// may write reports in a namespace can make one of this name large.
func (w *Writer) list(ctx context.Context) (map[string]listed, error) {
	found := map[string]listed{}
	for _, plural := range []string{clusterResource, resource} {
		for next := ""; ; {
			list, err := w.listPage(ctx, plural, next)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", plural, classified(err))
			}
			for i := range list.Items {
				o := &list.Items[i]
				if (o.Namespace == "") == (plural == clusterResource) && o.Name == w.name {
					found[o.Namespace] = listed{string(o.UID), o.ResourceVersion}
				}
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return found, nil
}

func (w *Writer) listPage(ctx context.Context, plural, next string) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(plural)).List(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + w.name, Limit: page, Continue: next,
	})
}

// apply writes a report, and returns its version. The API server keeps the version of one that does not change.
func (w *Writer) apply(ctx context.Context, r *v1alpha1.Report) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind}
	if r.Namespace == "" {
		r.Kind = clusterKind
	}
	r.Name, r.Labels = w.name, map[string]string{ManagedByLabel: Source, InstallLabel: w.namespace}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return "", err
	}
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	results, _ := object["results"].([]any)
	for _, one := range results {
		unstructured.RemoveNestedField(one.(map[string]any), "timestamp") //nolint:forcetypeassert // it is made of a struct
	}
	// The report is ours alone: whatever else is in these fields is a mistake.
	applied, err := w.resource(r.Namespace).Apply(ctx, w.name, &unstructured.Unstructured{Object: object}, metav1.ApplyOptions{FieldManager: "gatehouse-audit:" + w.namespace, Force: true})
	if err != nil {
		return "", err
	}
	return applied.GetResourceVersion(), nil
}

func (w *Writer) remove(ctx context.Context, namespace string, there listed) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.resource(namespace).Delete(ctx, w.name, *metav1.NewPreconditionDeleteOptions(there.uid))
}

func (w *Writer) resource(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource(clusterResource))
	}
	return w.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace)
}
