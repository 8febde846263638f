package openreports

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

const (
	// page is the number of reports whose metadata are read at a time.
	page = 50
	// requestTimeout bounds a request to the API server.
	requestTimeout = 15 * time.Second

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

// Writer writes the reports of an install. It is not safe for concurrent use.
type Writer struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	// namespace is that of the install.
	namespace string
	now       func() time.Time
	// written are the reports as they are known to be in the cluster, by namespace.
	written map[string]written
}

// written identifies a version of a report in the cluster, and its content.
type written struct {
	uid     types.UID
	version string
	digest  [sha256.Size]byte
}

// NewWriter returns a Writer. Namespace is that of the install.
func NewWriter(objects dynamic.Interface, metadata metadata.Interface, namespace string, now func() time.Time) *Writer {
	return &Writer{objects: objects, metadata: metadata, namespace: namespace, now: now, written: map[string]written{}}
}

// Changes are numbers of reports.
type Changes struct{ Written, Removed, Unchanged int }

// ErrUnserved is the error of a cluster that does not have the API of reports.
var ErrUnserved = errors.New("the API server does not have the kinds of reports")

// Write makes the reports in the cluster those that are given, and removes the others of this
// install. It reads a report only if it is not known to be as it was written. A namespace that is
// being deleted gets none. An error about one report does not keep it from writing the others,
// unless they would fail in the same way: a tenant can make the report of a namespace fail.
//
// Unread are what the audit could not read. A report that has results about one of these keeps a
// result that says so: without it, they would seem to be corrected.
func (w *Writer) Write(ctx context.Context, reports []Report, unread []audit.Coverage) (Changes, error) {
	var changes Changes
	found, err := w.list(ctx)
	if err != nil {
		return changes, err
	}
	there := maps.Clone(found)
	for i := range reports {
		delete(found, reports[i].Namespace)
	}
	var failed failures
	for i := range reports {
		if failed.last {
			break
		}
		r := &reports[i]
		known, exists := there[r.Namespace]
		wrote, err := w.update(ctx, r, known, exists, unread)
		switch {
		case err == nil && wrote:
			changes.Written++
		case err == nil:
			changes.Unchanged++
		case isGone(err):
			delete(w.written, r.Namespace)
			continue
		}
		failed.add("write", w.describe(r.Namespace), w.classified(err))
	}
	failed.last = failed.last && !failed.lacksRight // the right to delete is another one
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		if failed.last {
			break
		}
		failed.add("remove", w.describe(namespace), w.classified(w.leave(ctx, namespace, found[namespace], unread, &changes)))
	}
	return changes, failed.err()
}

// leave removes a report that nothing is found for any more, unless what it is about was not read.
func (w *Writer) leave(ctx context.Context, namespace string, there written, unread []audit.Coverage, changes *Changes) error {
	if namespace != "" && len(unread) > 0 {
		r := Report{Namespace: namespace, Configuration: configuration(0)}
		wrote, err := w.update(ctx, &r, there, true, unread)
		switch {
		case isGone(err):
			delete(w.written, namespace)
			return nil
		case err == nil && wrote:
			changes.Written++
			return nil
		case err == nil:
			changes.Unchanged++
			return nil
		case !errors.Is(err, errNothingLeft):
			return err
		}
	}
	err := w.remove(ctx, namespace, there.uid)
	switch {
	case err == nil:
		changes.Removed++
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone
	default:
		return err
	}
	delete(w.written, namespace)
	return nil
}

// errNothingLeft is the error of a report that has nothing to say.
var errNothingLeft = errors.New("there is nothing to report")

// failures collects errors about reports.
type failures struct {
	errs []error
	// more is the number of errors that are not in errs.
	more int
	// unreachable is the number of requests in a row that an API server did not answer.
	unreachable int
	// last reports whether all other requests would fail too, lacksRight whether for lack of a right.
	last, lacksRight bool
}

const (
	// maxFailures bounds the errors in a message, and maxUnreachable the requests to an API server
	// that does not answer.
	maxFailures    = 5
	maxUnreachable = 3
)

// add adds the result of a request, nil for success.
func (f *failures) add(action, report string, err error) {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	// With 500 the API server rejects one object: too large for its store, for example.
	if !apierr.Classify(err).IsTemporary() || answered && status.ErrStatus.Code == http.StatusInternalServerError {
		f.unreachable = 0
	} else {
		f.unreachable++
	}
	if err == nil {
		return
	}
	if f.lacksRight = f.lacksRight || LacksRight(err); f.lacksRight || f.unreachable >= maxUnreachable || errors.Is(err, ErrUnserved) || apierrors.IsUnauthorized(err) {
		f.last = true
	}
	if len(f.errs) == maxFailures {
		f.more++
		return
	}
	f.errs = append(f.errs, fmt.Errorf("%s %s: %w", action, report, err))
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.errs...)
}

// LacksRight reports whether an error of Write is about a missing right: refusals of quotas and other
// admission plugins are not.
func LacksRight(err error) bool {
	return slices.ContainsFunc([]string{"get", "list", "patch", "create", "delete"}, func(verb string) bool { return apierr.LacksRight(err, verb) })
}

// isGone reports whether a namespace is being deleted, or was.
func isGone(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return errors.Is(err, errNamespaceGone) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		ok && apierrors.IsNotFound(err) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Kind == "namespaces"
}

var errNamespaceGone = errors.New("the namespace is being deleted")

// classified marks the error of a cluster without the kinds of reports.
func (w *Writer) classified(err error) error {
	if class := apierr.Classify(err); class == apierr.Unserved || class == apierr.NotFound {
		return fmt.Errorf("%w (%s): %w", ErrUnserved, v1alpha1.SchemeGroupVersion, err)
	}
	return err
}

func (w *Writer) describe(namespace string) string {
	if namespace == "" {
		return clusterKind + " " + install.ReportName(w.namespace)
	}
	return kind + " " + namespace + "/" + install.ReportName(w.namespace)
}

// list returns the reports of this install by namespace. Only their metadata are read: a tenant who
// may write reports in a namespace can make one of this name large.
func (w *Writer) list(ctx context.Context) (map[string]written, error) {
	found := map[string]written{}
	for _, plural := range []string{clusterResource, resource} {
		for next := ""; ; {
			list, err := w.listPage(ctx, plural, next)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", plural, w.classified(err))
			}
			for i := range list.Items {
				o := &list.Items[i]
				if (o.Namespace == "") == (plural == clusterResource) && o.Name == install.ReportName(w.namespace) {
					found[o.Namespace] = written{uid: o.UID, version: o.ResourceVersion}
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
		FieldSelector: "metadata.name=" + install.ReportName(w.namespace), Limit: page, Continue: next,
	})
}

// update writes a report if the cluster has another, and reports whether it did.
func (w *Writer) update(ctx context.Context, r *Report, there written, exists bool, unread []audit.Coverage) (bool, error) {
	digest := digestOf(r, unread)
	known, isKnown := w.written[r.Namespace]
	if exists && isKnown && known.uid == there.uid && known.version == there.version && known.digest == digest {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var before v1alpha1.Report
	if exists {
		object, err := w.resource(r.Namespace).Get(ctx, install.ReportName(w.namespace), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if exists = err == nil; exists {
			there.uid, before = object.GetUID(), w.decode(object)
			r = r.keepUnread(&before, unread)
			if !isEmpty(r) && w.isSame(r, &before) {
				w.written[r.Namespace] = written{object.GetUID(), object.GetResourceVersion(), digest}
				return false, nil
			}
		}
	}
	if isEmpty(r) {
		return false, errNothingLeft
	}
	next, err := w.report(ctx, r, &before)
	if err != nil {
		return false, err
	}
	applied, err := w.apply(ctx, next)
	if exists && isTooLarge(err) {
		// What others have added to it is too much.
		if err := w.clear(ctx, r.Namespace, there.uid); err != nil {
			return false, err
		}
		applied, err = w.apply(ctx, next)
	}
	if err != nil {
		return false, err
	}
	w.written[r.Namespace] = written{applied.GetUID(), applied.GetResourceVersion(), digest}
	return true, nil
}

// isEmpty reports whether there is nothing to say about a namespace.
func isEmpty(r *Report) bool {
	return r.Namespace != "" && r.Summary.Fail+r.Summary.Warn+r.Summary.Error == 0
}

// clear removes a report, to write it anew.
func (w *Writer) clear(ctx context.Context, namespace string, uid types.UID) error {
	if err := w.remove(ctx, namespace, uid); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// isTooLarge reports whether an object is too large for the API server, or for its store.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || err != nil && (strings.Contains(err.Error(), "too large") || strings.Contains(err.Error(), "larger than max"))
}

// apply writes a report.
func (w *Writer) apply(ctx context.Context, r *v1alpha1.Report) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	// The report is ours alone: whatever else is in these fields is a mistake.
	return w.resource(r.Namespace).Apply(ctx, install.ReportName(w.namespace), &unstructured.Unstructured{Object: object}, metav1.ApplyOptions{FieldManager: "gatehouse-audit:" + w.namespace, Force: true})
}

func digestOf(r *Report, unread []audit.Coverage) [sha256.Size]byte {
	texts := make([]string, len(unread))
	for i := range unread {
		texts[i] = Unread(&unread[i])
	}
	encoded, _ := json.Marshal([]any{r, texts}) //nolint:errchkjson // these types can be encoded
	return sha256.Sum256(encoded)
}

func (w *Writer) resource(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource(clusterResource))
	}
	return w.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace)
}

// decode returns a report in the cluster. What cannot be decoded is as if it was not there.
func (w *Writer) decode(object *unstructured.Unstructured) v1alpha1.Report {
	var r v1alpha1.Report
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &r); err != nil {
		return v1alpha1.Report{}
	}
	return r
}

// isSame reports whether a report in the cluster says the same, but for the times of its results.
func (w *Writer) isSame(r *Report, there *v1alpha1.Report) bool {
	for label, value := range w.labels() {
		if there.Labels[label] != value {
			return false
		}
	}
	if there.Source != Source || there.Configuration == nil || !equality.Semantic.DeepEqual(*there.Configuration, r.Configuration) {
		return false
	}
	return there.Summary == r.Summary && slices.EqualFunc(there.Results, r.Results, func(a, b v1alpha1.ReportResult) bool {
		a.Timestamp, b.Timestamp = metav1.Timestamp{}, metav1.Timestamp{}
		return equality.Semantic.DeepEqual(a, b)
	})
}

func (w *Writer) labels() map[string]string {
	return map[string]string{ManagedByLabel: Source, InstallLabel: w.namespace}
}

// scope returns what a report is about, nil for the cluster.
func scope(namespace string) *corev1.ObjectReference {
	if namespace == "" {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace}
}

// report returns a report as it is applied. Results that were in the report before keep their time:
// it is that of the audit that first had them.
func (w *Writer) report(ctx context.Context, r *Report, before *v1alpha1.Report) (*v1alpha1.Report, error) {
	times := map[string]metav1.Timestamp{}
	for i := range before.Results {
		times[identity(&before.Results[i])] = before.Results[i].Timestamp
	}
	now := metav1.Timestamp{Seconds: w.now().Unix()}
	out := v1alpha1.Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: clusterKind},
		ObjectMeta: metav1.ObjectMeta{Name: install.ReportName(w.namespace), Namespace: r.Namespace, Labels: w.labels()},
		Source:     Source, Configuration: &r.Configuration, Scope: scope(r.Namespace), Summary: r.Summary, Results: slices.Clone(r.Results),
	}
	for i := range out.Results {
		t, found := times[identity(&out.Results[i])]
		if !found || t.Seconds <= 0 || t.Seconds > now.Seconds {
			t = now
		}
		out.Results[i].Timestamp = metav1.Timestamp{Seconds: t.Seconds}
	}
	if r.Namespace != "" {
		out.Kind = kind
		owner, err := w.owner(ctx, r.Namespace)
		if err != nil {
			return nil, err
		}
		out.OwnerReferences = []metav1.OwnerReference{owner}
	}
	return &out, nil
}

// owner returns the reference to a namespace.
func (w *Writer) owner(ctx context.Context, name string) (metav1.OwnerReference, error) {
	namespace, err := w.metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil {
		return metav1.OwnerReference{}, errNamespaceGone
	}
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: name, UID: namespace.UID}, nil
}

func (w *Writer) remove(ctx context.Context, namespace string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.resource(namespace).Delete(ctx, install.ReportName(w.namespace), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}
