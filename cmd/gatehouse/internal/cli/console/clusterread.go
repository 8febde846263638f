package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	gatehousev1alpha1 "github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// maxListed bounds the objects of one kind that a page reads.
const (
	listPage  = 500
	maxListed = 5000
)

// list reads objects of the cluster, at most maxListed. The error says which right is missing.
func list[T any](ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, namespace, selector string) (all []T, err error) {
	options := metav1.ListOptions{Limit: listPage, LabelSelector: selector}
	for {
		page, err := client.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, apierr.Explain(resource.GroupResource().String()+" cannot be listed", err)
		}
		for i := range page.Items {
			var one T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(page.Items[i].Object, &one); err != nil {
				return nil, fmt.Errorf("%s cannot be read: %w", resource.Resource, err)
			}
			all = append(all, one)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" || len(all) >= maxListed {
			return all, nil
		}
	}
}

// client returns a client of the cluster.
func (c *console) client() (dynamic.Interface, error) {
	access, err := c.Connect("--config DIR")
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(access)
}

// withStatus is a custom resource with its status, and when it expires.
type withStatus struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ExpiresAt *metav1.Time `json:"expiresAt"`
		// Reason and Policies are those of an exception.
		Reason   string                             `json:"reason"`
		Policies []gatehousev1alpha1.ExceptedPolicy `json:"policies"`
	} `json:"spec"`
	Status gatehousev1alpha1.ObjectStatus `json:"status"`
}

// objectKey identifies a custom resource of Gatehouse.
type objectKey struct{ kind, namespace, name string }

// shownNamespaces returns those of the command line, "" for all.
func (c *console) shownNamespaces() []string {
	if len(c.namespaces) == 0 {
		return []string{""}
	}
	return c.namespaces
}

// statuses returns custom resources with their status, and what could not be read.
func (c *console) statuses(ctx context.Context) (map[objectKey]*withStatus, []error) {
	client, err := c.client()
	if err != nil {
		return nil, []error{err}
	}
	all, errs := map[objectKey]*withStatus{}, []error(nil)
	for _, of := range []struct {
		kind, resource string
		namespaces     []string
	}{
		{admissionPolicyKind, "admissionpolicies", []string{""}},
		{"AdmissionPolicyBinding", "admissionpolicybindings", []string{""}},
		{profileKind, "sidecarprofiles", []string{""}},
		{exceptionKind, "policyexceptions", c.shownNamespaces()},
	} {
		for _, namespace := range of.namespaces {
			objects, err := list[withStatus](ctx, client, gatehousev1alpha1.GroupVersion.WithResource(of.resource), namespace, "")
			if err != nil {
				if of.kind == exceptionKind && namespace == "" {
					err = fmt.Errorf("%w (hint: gatehouse console --namespace NAME lists those of a namespace)", err)
				}
				errs = append(errs, err)
			}
			for i := range objects {
				all[objectKey{of.kind, objects[i].Namespace, objects[i].Name}] = &objects[i]
			}
		}
	}
	return all, errs
}

// explain says for people why something could not be read.
func explain(err error) string {
	if text := apierr.MissingRight(err); text != "" {
		return text
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in " + partTimeout.String()
	}
	return err.Error()
}

// explainAll explains errors, each text once, sorted.
func explainAll(errs []error) []string {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, strings.TrimSpace(explain(err)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
