package console

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit/openreports"
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
			return nil, explainList(resource, namespace, err)
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

// explainList says which right is missing.
func explainList(resource schema.GroupVersionResource, namespace string, err error) error {
	if !apierr.Classify(err).IsDenied() {
		return fmt.Errorf("%s cannot be listed: %w", resource.GroupResource(), err)
	}
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	return fmt.Errorf("the right to list %s%s is missing", resource.GroupResource(), where)
}

// client returns a client of the cluster.
func (c *console) client() (dynamic.Interface, error) {
	access, err := c.Connect("--config DIR")
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(access)
}

// withStatus is a custom resource with its status.
type withStatus struct {
	metav1.ObjectMeta `json:"metadata"`

	Status gatehousev1alpha1.ObjectStatus `json:"status"`
}

// objectKey identifies a custom resource of Gatehouse.
type objectKey struct{ kind, namespace, name string }

// statuses returns custom resources with their status, and what could not be read.
func (c *console) statuses(ctx context.Context) (map[objectKey]*withStatus, []error) {
	client, err := c.client()
	if err != nil {
		return nil, []error{err}
	}
	all, errs := map[objectKey]*withStatus{}, []error(nil)
	for kind, resource := range map[string]string{admissionPolicyKind: "admissionpolicies", profileKind: "sidecarprofiles", exceptionKind: "policyexceptions"} {
		objects, err := list[withStatus](ctx, client, gatehousev1alpha1.GroupVersion.WithResource(resource), "", "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i := range objects {
			all[objectKey{kind, objects[i].Namespace, objects[i].Name}] = &objects[i]
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return all, errs
}

// sentWebhook is a webhook of Gatehouse as it is registered in the cluster.
type sentWebhook struct {
	Configuration, Name, FailurePolicy string
	Rules                              []string
	Namespaces, Objects                string
	Conditions                         []admissionregistrationv1.MatchCondition
}

// webhooks returns the webhooks of Gatehouse that are registered in the cluster.
func (c *console) webhooks(ctx context.Context) ([]sentWebhook, []error) {
	client, err := c.client()
	if err != nil {
		return nil, []error{err}
	}
	version := admissionregistrationv1.SchemeGroupVersion
	var out []sentWebhook
	validating, err := list[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, client, version.WithResource("validatingwebhookconfigurations"), "", "")
	for i := range validating {
		for j := range validating[i].Webhooks {
			w := &validating[i].Webhooks[j]
			out = appendWebhook(out, "ValidatingWebhookConfiguration/"+validating[i].Name, w.Name, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions)
		}
	}
	mutating, other := list[admissionregistrationv1.MutatingWebhookConfiguration](ctx, client, version.WithResource("mutatingwebhookconfigurations"), "", "")
	for i := range mutating {
		for j := range mutating[i].Webhooks {
			w := &mutating[i].Webhooks[j]
			out = appendWebhook(out, "MutatingWebhookConfiguration/"+mutating[i].Name, w.Name, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions)
		}
	}
	return out, slices.DeleteFunc([]error{err, other}, func(err error) bool { return err == nil })
}

// appendWebhook adds a webhook if it is one of Gatehouse.
func appendWebhook(to []sentWebhook, configuration, name string, policy *admissionregistrationv1.FailurePolicyType, rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector, conditions []admissionregistrationv1.MatchCondition) []sentWebhook {
	if !strings.HasSuffix(name, ".gatehouse.dev") {
		return to
	}
	w := sentWebhook{Configuration: configuration, Name: name, FailurePolicy: string(admissionregistrationv1.Fail), Conditions: conditions}
	if policy != nil {
		w.FailurePolicy = string(*policy)
	}
	for i := range rules {
		w.Rules = append(w.Rules, ruleSummary(&rules[i]))
	}
	if !isEmptySelector(namespaces) {
		w.Namespaces = metav1.FormatLabelSelector(namespaces)
	}
	if !isEmptySelector(objects) {
		w.Objects = metav1.FormatLabelSelector(objects)
	}
	return append(to, w)
}

// auditFinding is a result of the audit about an object.
type auditFinding struct {
	Status, Rule, Object, Namespace, Message string
}

// auditFindings returns what the audit of the cluster has reported about a policy, in the namespaces that the user may read.
func (c *console) auditFindings(ctx context.Context, kind, name string) (found []auditFinding, errs []error) {
	client, err := c.client()
	if err != nil {
		return nil, []error{err}
	}
	namespaces := c.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	selector := openreports.ManagedByLabel + "=" + openreports.Source
	for _, namespace := range namespaces {
		reports, err := list[v1alpha1.Report](ctx, client, v1alpha1.SchemeGroupVersion.WithResource("reports"), namespace, selector)
		if err != nil && !apierrors.IsNotFound(err) { // OpenReports may not be installed
			if namespace == "" {
				err = fmt.Errorf("%w (hint: gatehouse console --namespace NAME lists those of a namespace)", err)
			}
			errs = append(errs, err)
		}
		for i := range reports {
			found = appendFindings(found, reports[i].Results, kind, name)
		}
	}
	clusterReports, err := list[v1alpha1.ClusterReport](ctx, client, v1alpha1.SchemeGroupVersion.WithResource("clusterreports"), "", selector)
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, err)
	}
	for i := range clusterReports {
		found = appendFindings(found, clusterReports[i].Results, kind, name)
	}
	return found, errs
}

// appendFindings adds the results about a policy.
func appendFindings(to []auditFinding, results []v1alpha1.ReportResult, kind, name string) []auditFinding {
	for i := range results {
		r := &results[i]
		of := r.Properties["kind"]
		if of == "" {
			of = admissionPolicyKind
		}
		if r.Source != openreports.Source || r.Policy != name || of != kind {
			continue
		}
		one := auditFinding{Status: string(r.Result), Rule: r.Rule, Message: r.Description}
		if len(r.Subjects) > 0 {
			one.Object, one.Namespace = r.Subjects[0].Kind+"/"+r.Subjects[0].Name, r.Subjects[0].Namespace
		}
		to = append(to, one)
	}
	return to
}
