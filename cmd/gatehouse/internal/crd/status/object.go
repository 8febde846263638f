package status

import (
	"context"
	"errors"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// page is how many objects are read at a time.
const page = 250

// fields are the fields of a status that are ours. A kind has some of them.
type fields struct {
	v1alpha1.ObjectStatus `json:",inline"`

	Requests *v1alpha1.PolicyCounts     `json:"requests,omitempty"`
	Audit    *v1alpha1.PolicyAudit      `json:"audit,omitempty"`
	Pods     *v1alpha1.SidecarPodCounts `json:"pods,omitempty"`
	Rules    []v1alpha1.ExceptedRule    `json:"rules,omitempty"`
}

// entry is an object in the cluster as it was last read.
type entry struct {
	uid        types.UID
	generation int64
	version    string // metadata.resourceVersion
	fields     fields
	// stale is true if the object may have changed since.
	stale bool

	memory
}

// memory is the state of the writes of an object.
type memory struct {
	// readFor is the version of the object that it was read for.
	readFor version
	// next is the time of the next attempt, after failures in a row.
	next     time.Time
	failures int
	// countedAt is when counts were last written.
	countedAt time.Time
	// hasNoStatus is whether its status could not be found.
	hasNoStatus     bool
	managerConflict *managerConflict
}

// version identifies a version of an object.
type version struct {
	uid        types.UID
	generation int64
}

// managerConflict is that another manager keeps a field of ours.
type managerConflict struct {
	manager string
	// wrote is when it wrote last, as the API server has it, and since is from when
	// on it has been that, by our clock.
	wrote, since time.Time
	// taken is whether fields were taken from it, and alive whether it wrote after
	// that.
	taken, alive bool
	// tries is how often in a row it was left alone.
	tries int
}

func (c *Controller) resource(k key) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(k.kind))
	if k.namespace == "" {
		return c.cfg.Client.Resource(resource)
	}
	return c.cfg.Client.Resource(resource).Namespace(k.namespace)
}

// list reads all objects of a kind, page by page.
func (c *Controller) list(ctx context.Context, kind string, do func(*unstructured.Unstructured)) error {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return c.resource(key{kind: kind}).List(ctx, o)
	})
	list.PageSize = page
	return list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if object, ok := item.(*unstructured.Unstructured); ok {
			do(object)
		}
		return nil
	})
}

func (c *Controller) read(ctx context.Context, k key) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.resource(k).Get(ctx, k.name, metav1.GetOptions{})
}

// apply writes our fields of a status, if the object is still as it was read.
func (c *Controller) apply(ctx context.Context, k key, e *entry, f *fields, force bool) (*unstructured.Unstructured, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": k.name, "resourceVersion": e.version}
	if k.namespace != "" {
		metadata["namespace"] = k.namespace
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": k.kind, "metadata": metadata, "status": status,
	}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.resource(k).ApplyStatus(ctx, k.name, object, metav1.ApplyOptions{FieldManager: c.manager, Force: force})
}

// observe stores an object as it is in the cluster. A status that cannot be decoded counts
// as none.
func (e *entry) observe(object *unstructured.Unstructured) {
	e.uid, e.generation, e.version, e.stale = object.GetUID(), object.GetGeneration(), object.GetResourceVersion(), false
	e.fields = fields{}
	status, ok := object.Object["status"].(map[string]any)
	if !ok {
		return
	}
	var f fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &f); err == nil {
		e.fields = f
	}
}

// reference is the object for an Event.
func reference(o *Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}
}

// otherManager finds the manager of a field in an error of the API server.
var otherManager = regexp.MustCompile(`conflict with "([^"]{1,200})"`)

// conflictingManager returns the manager of the field that an error of a write is about.
func conflictingManager(err error) (string, bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return "", false
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		if found := otherManager.FindStringSubmatch(cause.Message); found != nil {
			return found[1], true
		}
	}
	return "unknown", true
}

// lastWrite returns when a manager last wrote an object, by the clock of the API server.
func lastWrite(object *unstructured.Unstructured, manager string) time.Time {
	var last time.Time
	for _, m := range object.GetManagedFields() {
		if m.Manager == manager && m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}
